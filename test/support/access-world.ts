import { createHash, randomUUID } from "node:crypto";
import { createToken } from "../../src/app/create-token.ts";
import { type Config, parseConfig } from "../../src/config/schema.ts";
import type { Run } from "../../src/domain/run.ts";
import type { Session } from "../../src/domain/session.ts";
import { sessionTools } from "../../src/domain/tool-policy.ts";
import type { Requester } from "../../src/domain/visibility.ts";
import { deleteSession, supersedeSession } from "../../src/store/sessions.ts";
import { inTransaction } from "../../src/store/transaction.ts";
import type { TestApp } from "./app.ts";
import { addRun, TestHost } from "./seed.ts";
import { addSession, send } from "./session-tools.ts";

/** What a session that calls may stand to. */
export interface World {
  /** Of the run in progress that makes the calls. */
  readonly token: string;
  readonly requester: Requester;
  readonly targets: Readonly<Record<string, WorldTarget>>;
}

export interface WorldTarget {
  readonly session: Session;
  readonly run: Run;
}

/** Sub-agents with every tool, as those of these worlds are callers too. */
export const subagentsWithTools = { tools: { allow: ["*", ...sessionTools] } };

/** Agents nova, otter and quill run free, boxed in a sandbox. */
export function settings(tools: object, sessionToolsVisibility: "spawned" | "all" = "spawned"): Config {
  return parseConfig({
    agents: {
      defaults: { sandbox: { sessionToolsVisibility } },
      list: [{ id: "nova" }, { id: "otter" }, { id: "quill" }, { id: "boxed", sandbox: { mode: "all" } }],
    },
    server: { drainNoticeMs: 0, drainGraceSeconds: 1 },
    tools: { subagents: subagentsWithTools, ...tools },
  });
}

/** A session of `agentId` in the middle of a spawn tree, with a run in progress, and one session of each relation to it. */
export async function makeWorld(app: TestApp, agentId: string): Promise<World> {
  const add = (key: string, fields: object = {}) => addSession(app, `agent:${key}`, fields);
  const spawned = (agent: string, parent: Session) => add(`${agent}:subagent:${randomUUID()}`, { parent });
  const supersede = (session: Session) => inTransaction(app.db, (tx) => supersedeSession(tx, session.id));
  const again = (session: Session, fields: object) => add(session.sessionKey.replace(/^agent:/, ""), fields);
  const parent = await add(`${agentId}:main`);
  const before = await supersede(await spawned(agentId, parent));
  const ofBefore = await spawned(agentId, before);
  const deleted = await again(before, { succeeds: before });
  await inTransaction(app.db, (tx) => deleteSession(tx, deleted.id));
  const earlier = await again(before, { parent });
  const ofEarlier = await spawned(agentId, earlier);
  await supersede(earlier);
  const own = await again(earlier, { succeeds: earlier });
  const token = await startRun(app, own);
  const child = await spawned(agentId, own);
  const sessions: Record<string, Session> = {
    own,
    "earlier incarnation": earlier,
    child,
    grandchild: await spawned("otter", child),
    "child run by another agent": await spawned("quill", own),
    "child of an earlier incarnation": ofEarlier,
    "its key before a deletion": before,
    "child of its key before a deletion": ofBefore,
    sibling: await spawned(agentId, parent),
    parent,
    "same agent, other tree": await add(`${agentId}:telegram:direct:${randomUUID()}`),
    "same agent, archived": await add(`${agentId}:discord:direct:${randomUUID()}`, { archivedAt: app.clock.now() }),
    "reachable agent": await add(`otter:direct:${randomUUID()}`),
    "unlisted agent": await add(`quill:direct:${randomUUID()}`),
    reserved: await add(`${agentId}:unknown`, { reserved: true }),
  };
  const targets: Record<string, WorldTarget> = {};
  for (const [relation, session] of Object.entries(sessions)) {
    targets[relation] = { session, run: await addRun(app, session) };
  }
  const sent = await send(app, {
    session: targets["unlisted agent"]!.session.sessionId,
    principal: { role: "operator", name: "x" },
  });
  targets["sent to an unlisted agent"] = {
    session: targets["unlisted agent"]!.session,
    run: await sentBy(app, own, sent.run),
  };
  return { token, requester: { addressId: own.addressId, rootId: own.rootId, agentId }, targets };
}

/** Makes a run one that a session has sent, as if the settings had allowed it at the time. */
async function sentBy(app: TestApp, source: Session, run: Run): Promise<Run> {
  const { sessionKey: sourceSessionKey, sessionId: sourceSessionId } = source;
  const provenance = { kind: "inter_session", sourceSessionKey, sourceSessionId, sourceTool: "sessions_send" } as const;
  const stored = JSON.stringify(provenance);
  await app.db
    .updateTable("runs")
    .set({ provenance: stored, source_session_id: sourceSessionId })
    .where("id", "=", run.id)
    .execute();
  return { ...run, provenance };
}

async function startRun(app: TestApp, session: Session): Promise<string> {
  await addRun(app, session);
  const { runToken } = await new TestHost(app).claimOne({ agentIds: [session.agentId] });
  return runToken;
}

/** A lasting token of an agent host that serves these agents. */
export async function hostToken(app: TestApp, agents: string[]): Promise<string> {
  const { token } = await createToken(app, { name: `host of ${agents.join(" ")}`, grant: { role: "host", agents } });
  return token;
}

export async function connectorToken(app: TestApp): Promise<string> {
  const { token } = await createToken(app, { name: "telegram", grant: { role: "connector", channels: ["telegram"] } });
  return token;
}

/** A file given to a session, or given back by a run of it. */
export async function addFile(app: TestApp, session: Session, run?: Run): Promise<string> {
  const data = Buffer.from(randomUUID());
  const sha256 = createHash("sha256").update(data).digest();
  const attachmentId = randomUUID();
  const created_at = app.clock.now();
  await app.db
    .insertInto("blobs")
    .values({ sha256, size: BigInt(data.length), data, created_at })
    .execute();
  await app.db
    .insertInto("attachments")
    .values({
      attachment_id: attachmentId,
      session: session.id,
      run: run?.id ?? null,
      direction: run === undefined ? 1 : 2,
      position: 0,
      name: attachmentId,
      name_key: attachmentId,
      size: BigInt(data.length),
      sha256,
      created_at,
    })
    .execute();
  return attachmentId;
}
