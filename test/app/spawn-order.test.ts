import { randomUUID } from "node:crypto";
import { beforeAll, expect, test } from "vitest";
import { resetSession } from "../../src/app/reset-session.ts";
import { parseConfig } from "../../src/config/schema.ts";
import { AppError } from "../../src/domain/errors.ts";
import type { Run } from "../../src/domain/run.ts";
import type { Session } from "../../src/domain/session.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { addRun } from "../support/seed.ts";
import { actingAs, addSession, operator } from "../support/session-tools.ts";
import { refusalOf, type SpawnFields, spawn, validateSpawn } from "../support/spawn.ts";

/** What is wrong with a spawn: everything about the world and the request that a check may refuse. */
interface Wrongs {
  readonly fields?: Partial<SpawnFields>;
  readonly settings?: object;
  readonly subagents?: object;
  readonly requester?: { readonly superseded?: boolean; readonly deep?: boolean; readonly busy?: boolean };
  readonly run?: { readonly canceled?: boolean; readonly chained?: boolean };
}

const file = (name: string) => ({ name, content: { type: "text" as const, text: "x" } });
const requesterAgent = { id: "otter", sandbox: { mode: "all" }, subagents: { allowAgents: ["otter", "nova"] } };

/** Every check in the order that SpawnSession promises, with what breaks it and nothing before it. */
const checks: readonly [kind: string, wrongs: Wrongs][] = [
  ["tool_denied", { settings: { tools: { deny: ["sessions_spawn"] } } }],
  ["field_invalid task", { fields: { task: "" } }],
  ["session_superseded", { requester: { superseded: true } }],
  ["spawn_depth_exceeded", { requester: { deep: true } }],
  ["spawn_runtime_unsupported", { fields: { runtime: "acp" } }],
  ["thread_required", { fields: { mode: "session", thread: false } }],
  ["field_invalid cleanup", { fields: { mode: "session", cleanup: "delete", thread: true } }],
  ["spawn_agent_not_allowed", { fields: { agentId: "quill" } }],
  ["sandbox_escape_denied", { fields: { agentId: "nova" } }],
  ["model_invalid", { fields: { model: "nope" } }],
  ["thinking_level_invalid", { fields: { thinkingLevel: "max" } }],
  ["attachments_refused", { fields: { attachments: [file("..")] } }],
  ["send_policy_denied", { settings: { session: { sendPolicy: { default: "deny" } } } }],
  ["chain_refused", { run: { chained: true } }],
  ["run_terminal", { run: { canceled: true } }],
  ["thread_unavailable", { fields: { thread: true, mode: "run" } }],
  ["children_limit requester", { requester: { busy: true }, subagents: { maxChildrenPerAgent: 1 } }],
  ["children_limit service", { requester: { busy: true }, subagents: { maxActive: 1 } }],
];

let app: TestApp;
beforeAll(async () => {
  app = await testApp();
});

function worldOf({ settings = {}, subagents = {} }: Wrongs) {
  const { tools, ...rest } = settings as { tools?: object };
  const list = [{ ...requesterAgent, ...(tools && { tools }) }, { id: "nova" }, { id: "quill" }];
  const defaults = { subagents: { maxSpawnDepth: 1, ...subagents } };
  return { ...app, config: parseConfig({ models: { "m-small": {} }, agents: { defaults, list }, ...rest }) };
}

async function requesterOf({ requester }: Wrongs): Promise<Session> {
  const parent = await addSession(app, `agent:otter:direct:${randomUUID()}`);
  const from = await addSession(app, `agent:otter:direct:${randomUUID()}`, requester?.deep ? { parent } : {});
  if (requester?.busy) await spawn(worldOf({}), { from });
  return from;
}

/** A run of the requester that calls: one a chain of sends led to, or one that was canceled. */
async function runOf(from: Session, { run }: Wrongs): Promise<Run | undefined> {
  if (run === undefined) return undefined;
  const chain = Array.from({ length: 10 }, (_, n) => `agent:otter:direct:${n}`);
  const provenance = { kind: "inter_session" as const, chainId: randomUUID(), hop: 10, chain };
  const sending = await addRun(app, from, run.chained ? { provenance } : {});
  if (run.canceled) {
    const canceled = { cancel_requested_at: app.clock.now() };
    await app.db.updateTable("runs").set(canceled).where("id", "=", sending.id).execute();
  }
  return sending;
}

/** Both at once; a field that both set is as the earlier one has it, which breaks the later check as well. */
function both(earlier: Wrongs, later: Wrongs): Wrongs {
  return {
    fields: { ...later.fields, ...earlier.fields },
    settings: { ...later.settings, ...earlier.settings },
    subagents: { ...later.subagents, ...earlier.subagents },
    ...((earlier.run ?? later.run) && { run: { ...later.run, ...earlier.run } }),
    requester: { ...later.requester, ...earlier.requester },
  };
}

async function expectRefusal(wrongs: Wrongs, expected: string): Promise<void> {
  const world = worldOf(wrongs);
  const from = await requesterOf(wrongs);
  const run = await runOf(from, wrongs);
  if (wrongs.requester?.superseded) {
    await resetSession(app, { principal: operator, requestId: randomUUID(), session: from.sessionKey });
  }
  const fields = { from, ...wrongs.fields, ...(run !== undefined && { principal: actingAs(from, run) }) };
  const validated = await validateSpawn(world, fields).catch((error: unknown) => error);
  if (!(validated instanceof AppError)) throw new Error("was not refused", { cause: validated });
  const [kind, detail = ""] = expected.split(" ");
  for (const facts of [validated.facts, await refusalOf(world, fields)]) {
    expect(facts.kind).toBe(kind);
    expect(JSON.stringify(facts)).toContain(detail);
  }
}

test.each(checks)("%s refuses alone, with validate_only too", async (kind, wrongs) => {
  await expectRefusal(wrongs, kind);
});

const pairs = checks.slice(1).map(([kind, wrongs], index) => [...checks[index]!, kind, wrongs] as const);

test.each(pairs)("%s answers before what comes next in the contract", async (kind, wrongs, _, next) => {
  await expectRefusal(both(wrongs, next), kind);
});

test("a request with nothing wrong is accepted", async () => {
  expect((await spawn(worldOf({}), { from: await requesterOf({}) })).child.agentId).toBe("otter");
});
