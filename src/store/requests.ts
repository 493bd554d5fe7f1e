import { sql } from "kysely";
import type { Db, Tx } from "./database.ts";

/** Names a mutation a caller may repeat: ids are scoped to caller and method (S9.5). */
export interface RequestName {
  readonly caller: string;
  readonly method: string;
  readonly requestId: string;
}

/** A remembered mutation. */
export interface RememberedRequest {
  readonly payloadHash: Buffer;
  /** JSON as the verb wrote it; empty while the mutation runs. */
  readonly result: string;
}

export async function findRequest(db: Db, name: RequestName): Promise<RememberedRequest | undefined> {
  const row = await named(db, name).executeTakeFirst();
  return row === undefined ? undefined : { payloadHash: row.payload_hash, result: row.result };
}

/**
 * Takes a request id for this transaction; false when it was used before. When another transaction is just using it,
 * waits for that one to end: true if it failed, false if it committed (C14).
 */
export async function reserveRequest(
  tx: Tx,
  name: RequestName,
  { payloadHash, result }: RememberedRequest,
  now: Date,
): Promise<boolean> {
  const taken = await sql`
    insert into requests (caller, method, request_id, payload_hash, result, created_at)
    values (${name.caller}, ${name.method}, ${name.requestId}, ${payloadHash}, ${result}, ${now})
    on conflict do nothing`.execute(tx);
  return taken.numAffectedRows === 1n;
}

/** Writes the answer a repeat will get. */
export async function saveRequest(tx: Tx, name: RequestName, result: string): Promise<void> {
  await tx
    .updateTable("requests")
    .set({ result })
    .where("caller", "=", name.caller)
    .where("method", "=", name.method)
    .where("request_id", "=", name.requestId)
    .execute();
}

function named(db: Db, name: RequestName) {
  return db
    .selectFrom("requests")
    .select(["payload_hash", "result"])
    .where("caller", "=", name.caller)
    .where("method", "=", name.method)
    .where("request_id", "=", name.requestId);
}
