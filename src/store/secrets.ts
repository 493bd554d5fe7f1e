import { randomBytes } from "node:crypto";
import type { Db } from "./database.ts";

const secretBytes = 32;

/**
 * A secret that all replicas of a database share, made by whoever asks first. It never changes: what is sealed with it,
 * a page token for example, opens on every replica and after every restart.
 */
export async function getSharedSecret(db: Db, name: string): Promise<Buffer> {
  await db
    .insertInto("secrets")
    .values({ name, value: randomBytes(secretBytes) })
    .onConflict((conflict) => conflict.column("name").doNothing())
    .execute();
  const { value } = await db.selectFrom("secrets").select("value").where("name", "=", name).executeTakeFirstOrThrow();
  return value;
}
