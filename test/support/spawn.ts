import { randomUUID } from "node:crypto";
import { sql } from "kysely";
import type { App } from "../../src/app/context.ts";
import type { SpawnInput } from "../../src/app/spawn-input.ts";
import { type SpawnedSession, spawnSession } from "../../src/app/spawn-session.ts";
import { type Config, parseConfig } from "../../src/config/schema.ts";
import { AppError, type ErrorFacts } from "../../src/domain/errors.ts";
import type { Session } from "../../src/domain/session.ts";
import { findSessionBySessionId } from "../../src/store/sessions.ts";
import { actingAs, addSession } from "./session-tools.ts";

export type SpawnFields = Partial<SpawnInput> & {
  /** The requester; the call comes from a run of it, unless `principal` says otherwise. */
  readonly from: Session;
};

export interface Spawned {
  readonly result: SpawnedSession;
  readonly child: Session;
}

/** Spawns a child with a task and nothing else, unless told otherwise. */
export async function spawn(app: App, { from, ...fields }: SpawnFields): Promise<Spawned> {
  const result = await spawnSession(app, toSpawnInput(from, fields));
  if (result.validated) throw new Error("nothing was spawned");
  const child = await findSessionBySessionId(app.db, result.childSessionId);
  if (child === undefined) throw new Error("the child is gone");
  return { result, child };
}

/** Checks a spawn without doing it. */
export function validateSpawn(app: App, { from, ...fields }: SpawnFields) {
  return spawnSession(app, toSpawnInput(from, { ...fields, validateOnly: true }));
}

function toSpawnInput(from: Session, fields: Partial<SpawnInput>): SpawnInput {
  return {
    principal: actingAs(from),
    requestId: randomUUID(),
    task: "count the boats",
    thread: false,
    attachments: [],
    ...fields,
  };
}

/** A fleet with a catalog, in which nova may spawn everybody, otter is sandboxed, and quill may spawn ember alone. */
export const spawnFleet: Config = parseConfig({
  models: { "m-small": { alias: "fast" }, "m-large": { thinking: ["low", "high"] } },
  agents: {
    defaults: {
      model: "m-small",
      runTimeoutSeconds: 7,
      subagents: { runTimeoutSeconds: 600, maxChildrenPerAgent: 100 },
    },
    list: [
      { id: "nova", default: true, subagents: { allowAgents: ["*"] } },
      { id: "otter", sandbox: { mode: "all" }, tools: { deny: ["web_*"] } },
      { id: "quill", subagents: { allowAgents: ["ember"] } },
      { id: "ember", subagents: { model: "m-large", thinking: "low" } },
    ],
  },
});

/** A session of nova in a chat. */
export function addRequester(app: App): Promise<Session> {
  const deliveryRoute = { channel: "telegram", to: "chat-1", accountId: "bot-a" };
  return addSession(app, `agent:nova:direct:${randomUUID()}`, { deliveryRoute });
}

/** What refuses a spawn. Every table is checked to be as it was. */
export async function refusalOf(app: App, fields: SpawnFields): Promise<ErrorFacts> {
  const before = await countAllRows(app);
  const error = await spawn(app, fields).catch((thrown: unknown) => thrown);
  if (!(error instanceof AppError)) throw new Error("was not refused", { cause: error });
  const after = await countAllRows(app);
  const changed = Object.keys(after).filter((table) => after[table] !== before[table]);
  if (changed.length > 0) throw new Error(`rows changed in ${changed.join(", ")}`);
  return error.facts;
}

/** Rows of every table of the database. */
export async function countAllRows(app: App): Promise<Record<string, bigint>> {
  const { rows } = await sql<{ name: string }>`
    select relname as name from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace`.execute(app.db);
  const counts = rows.map(({ name }) => sql`select ${name}::text as name, count(*) as n from ${sql.table(name)}`);
  const all = await sql<{ name: string; n: bigint }>`${sql.join(counts, sql` union all `)}`.execute(app.db);
  return Object.fromEntries(all.rows.map(({ name, n }) => [name, n]));
}
