import { randomUUID } from "node:crypto";
import { sql } from "kysely";
import { expect, test } from "vitest";
import { archiveSession } from "../../src/app/archive-session.ts";
import { archiveSpawns } from "../../src/app/archive-spawns.ts";
import { cancelRun } from "../../src/app/cancel-run.ts";
import type { ClaimedRun } from "../../src/app/claimed-run.ts";
import { deleteSession } from "../../src/app/delete-session.ts";
import { endCanceledRuns } from "../../src/app/end-canceled-runs.ts";
import { endOverdueRuns } from "../../src/app/end-overdue-runs.ts";
import { expireDeliveries } from "../../src/app/expire-deliveries.ts";
import { expireLeases } from "../../src/app/expire-leases.ts";
import { expireThreads } from "../../src/app/expire-threads.ts";
import { heartbeatRuns } from "../../src/app/heartbeat-runs.ts";
import { resetSession } from "../../src/app/reset-session.ts";
import { parseConfig } from "../../src/config/schema.ts";
import type { Delivery } from "../../src/domain/delivery.ts";
import { AppError } from "../../src/domain/errors.ts";
import { messageText } from "../../src/domain/message.ts";
import type { Session } from "../../src/domain/session.ts";
import { decodeMessageBody } from "../../src/store/message-body.ts";
import { findSessionByKey } from "../../src/store/sessions.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { receive, type TestConnector } from "../support/deliveries.ts";
import { countDeadlocks } from "../support/locks.ts";
import { addLane, heldBy, operator, TestHost } from "../support/seed.ts";
import { seededRandom } from "../support/seeded-random.ts";
import { type Spawned, spawn } from "../support/spawn.ts";
import { addRequester, chat, threadConnector } from "../support/threads.ts";

const config = parseConfig({
  agents: { defaults: { subagents: { maxChildrenPerAgent: 1000, announceTimeoutSeconds: 120 } } },
  tools: { subagents: { tools: { allow: ["*", "sessions_spawn"] } } },
  session: { threadBindings: { idleHours: 1 } },
  runs: { retryInitialSeconds: 1, retryMaxSeconds: 1 },
});

const workersCount = 8;
const actsPerWorker = 100;

/** What all workers know. */
interface World {
  /** Keys of sessions that spawn. */
  readonly keys: string[];
  readonly spawned: Spawned[];
  readonly threads: string[];
}

/** Lost races; anything else is a fault, a conflict above all. */
const lost = new Set([
  "lease_lost",
  "delivery_lease_lost",
  "run_terminal",
  "session_superseded",
  "session_not_found",
  "run_not_found",
  "spawn_depth_exceeded",
  "thread_unavailable",
]);

/** A host and a connector in one, that does one thing after the other at random. */
class Worker {
  readonly host: TestHost;
  readonly #app: TestApp;
  readonly #connector: TestConnector;
  readonly #world: World;
  readonly #random: () => number;
  #held: ClaimedRun[] = [];
  #carried: Delivery[] = [];

  constructor(app: TestApp, connector: TestConnector, world: World, seed: number) {
    this.#app = app;
    this.#connector = connector;
    this.#world = world;
    this.host = new TestHost(app);
    this.#random = seededRandom(seed);
  }

  async work(): Promise<void> {
    for (let n = 0; n < actsPerWorker; n++) {
      await this.#act().catch((error: unknown) => {
        if (!(error instanceof AppError) || !lost.has(error.facts.kind)) throw error;
      });
    }
  }

  async #act(): Promise<void> {
    const dice = this.#random();
    if (dice < 0.16) return this.#spawn();
    if (dice < 0.32) return this.#claim();
    if (dice < 0.54) return this.#endOne();
    if (dice < 0.8) return this.#carry();
    if (dice < 0.88) return this.#write();
    if (dice < 0.97) return this.#change();
    await this.#sweep();
  }

  async #spawn(): Promise<void> {
    const { keys, spawned } = this.#world;
    const from = await findSessionByKey(this.#app.db, this.#pick(keys));
    if (from === undefined) return;
    const thread = from.deliveryRoute !== undefined && this.#random() < 0.6;
    const cleanup = this.#random() < 0.3 ? "delete" : "keep";
    const child = await spawn(this.#app, { from, thread, ...(!thread && { cleanup }) });
    spawned.push(child);
    if (this.#random() < 0.1) keys.push(child.child.sessionKey);
  }

  async #claim(): Promise<void> {
    this.#held.push(...(await this.host.claim({ maxRuns: 2 })));
    const { hostId, instanceId } = this.host;
    await heartbeatRuns(this.#app, { hostId, instanceId, items: this.#held.map(heldBy), waitMs: 0 });
  }

  async #endOne(): Promise<void> {
    const held = this.#held.shift();
    if (held === undefined) return;
    const dice = this.#random();
    if (dice < 0.1) await this.host.fail(held, { retryable: dice < 0.05 });
    else await this.host.complete(held, dice < 0.3 ? "ANNOUNCE_SKIP" : "done");
  }

  async #carry(): Promise<void> {
    const held = this.#carried.shift();
    if (held === undefined) {
      this.#carried.push(...(await this.#connector.claim({ maxDeliveries: 3 })));
      return;
    }
    await carry(this.#connector, held, this.#world, this.#random());
  }

  async #write(): Promise<void> {
    const { threads } = this.#world;
    if (threads.length === 0) return;
    await receive(this.#app, {
      chatType: "group",
      chatId: chat.to,
      accountId: chat.accountId,
      threadId: this.#pick(threads),
    });
  }

  async #change(): Promise<void> {
    const { spawned, keys } = this.#world;
    if (spawned.length === 0) return;
    const named = { principal: operator, requestId: randomUUID() };
    const { result, child } = this.#pick(spawned);
    const dice = this.#random();
    if (dice < 0.25) await cancelRun(this.#app, operator, { requestId: randomUUID(), runId: result.run.runId });
    else if (dice < 0.5) await deleteSession(this.#app, { ...named, session: child.sessionId });
    else if (dice < 0.65) await resetSession(this.#app, { ...named, session: child.sessionKey });
    else if (dice < 0.75) await archiveSession(this.#app, { ...named, session: child.sessionId });
    else if (dice < 0.95) await resetSession(this.#app, { ...named, session: this.#pick(keys) });
    else await deleteSession(this.#app, { ...named, session: this.#pick(keys.slice(3)) });
  }

  async #sweep(): Promise<void> {
    this.#app.clock.advance(this.#random() < 0.1 ? 3_600_000 : 20_000);
    await sweep(this.#app);
  }

  #pick<T>(items: readonly T[]): T {
    return items[Math.floor(this.#random() * items.length)]!;
  }
}

async function sweep(app: TestApp): Promise<void> {
  await expireLeases(app);
  await endOverdueRuns(app);
  await endCanceledRuns(app);
  await expireDeliveries(app);
  await expireThreads(app);
  await archiveSpawns(app);
}

async function carry(connector: TestConnector, held: Delivery, world: World, dice: number): Promise<void> {
  if (!(await connector.begin(held)).maySend) return;
  if (dice < 0.1) await connector.nack(held);
  else if (held.kind !== "bind_thread") await connector.ack(held);
  else {
    const threadId = `T-${held.deliveryId}`;
    await connector.bind(held, { threadId });
    world.threads.push(threadId);
  }
}

/** Ends everything that is left, so that what stalled shows. */
async function drain(app: TestApp, host: TestHost, connector: TestConnector, world: World): Promise<void> {
  for (let idle = 0; idle < 3; ) {
    app.clock.advance(60_000);
    await sweep(app);
    const runs = await host.claim({ maxRuns: 50 });
    for (const held of runs) await host.complete(held);
    const deliveries = await connector.claim({ maxDeliveries: 50 });
    for (const held of deliveries) await carry(connector, held, world, 1);
    idle = runs.length + deliveries.length === 0 ? idle + 1 : 0;
  }
}

test("C80: each spawn is told once or is surely silent, whatever replicas, hosts, connectors and operators do at once", async () => {
  const first = await testApp({ config });
  const second = await testApp({ replicaOf: first, config });
  const keys = (await Promise.all([addRequester(first), addRequester(first), addLane(first)])).map(
    (s: Session) => s.sessionKey,
  );
  const world: World = { keys, spawned: [], threads: [] };
  const workers = await Promise.all(
    Array.from({ length: workersCount }, async (_, n) => {
      const app = n % 2 ? first : second;
      return new Worker(app, await threadConnector(app), world, n);
    }),
  );
  await Promise.all(workers.map((worker) => worker.work()));
  await drain(first, new TestHost(first), await threadConnector(first), world);
  // What a cascade finds only when it looks again is locked out of order, and nothing else.
  expect(await countDeadlocks(first)).toBeLessThan(3);
  expect(world.spawned.length).toBeGreaterThan(50);
  const stories = await storiesOf(first);
  expect(stories).toHaveLength(world.spawned.length);
  expect(stories.filter((story) => !isWhole(story))).toEqual([]);
  expect(await listLeftovers(first)).toEqual([]);
}, 120_000);

interface Story {
  readonly child: bigint;
  readonly phase: number;
  readonly outcome: number;
  readonly settled: boolean;
  readonly requester_state: number;
  readonly primary: number;
  readonly announce: number | null;
  readonly word: string | null;
  readonly deliveries: number;
  readonly reports: number;
}

/** What became of each spawn. */
async function storiesOf({ db }: TestApp): Promise<Story[]> {
  const reports = new Map<string, number>();
  for (const { body } of await db.selectFrom("messages").select("body").where("role", "=", 1).execute()) {
    const { provenance, parts } = decodeMessageBody(body);
    const from = provenance?.sourceTool === "sessions_spawn" && messageText(parts).startsWith("Status: ");
    const child = from ? provenance?.sourceSessionId : undefined;
    if (child !== undefined) reports.set(child, (reports.get(child) ?? 0) + 1);
  }
  const { rows } = await sql<Omit<Story, "reports"> & { child_id: string }>`
    select s.child, c.session_id as child_id, x.phase, x.announce_outcome as outcome, s.settled_at is not null and s.run_ended_at is not null as settled,
      r.state as requester_state, p.state as primary, a.state as announce, a.reply as word,
      (select count(*)::int from deliveries where exchange = x.id) as deliveries
    from spawns s join exchanges x on x.id = s.exchange join sessions c on c.id = s.child
    join sessions r on r.id = s.requester join runs p on p.exchange = x.id and p.exchange_step = 'primary'
    left join runs a on a.exchange = x.id and a.exchange_step = 'announce' order by s.child`.execute(db);
  return rows.map(({ child_id, ...row }) => ({ ...row, reports: reports.get(child_id) ?? 0 }));
}

const states = { completed: 3, canceled: 5, deleted: 4 };
const outcomes = { delivered: 2, skipped: 3, denied: 4, noRoute: 5, failed: 6, unknown: 7 };

/** Told once, to the requester and to its chat if it has one; or nobody, for a reason. */
function isWhole({ phase, settled, outcome, primary, announce, word, ...story }: Story): boolean {
  if (phase !== 4 || !settled) return false;
  const canceled = primary === states.canceled || announce === states.canceled;
  const silent = canceled || word === "ANNOUNCE_SKIP";
  const told = silent ? 0 : 1;
  if (story.requester_state !== states.deleted && story.reports !== told) return false;
  switch (outcome) {
    case outcomes.skipped:
      return silent && story.deliveries === 0;
    case outcomes.failed:
      return story.deliveries === told;
    case outcomes.noRoute:
      return !silent && story.deliveries === 0;
    case outcomes.denied:
      return story.requester_state === states.deleted;
    case outcomes.delivered:
    case outcomes.unknown:
      return !silent && story.deliveries === 1;
    default:
      return false;
  }
}

async function listLeftovers({ db }: TestApp): Promise<unknown[]> {
  const { rows } = await sql`
    select 'run' as what, id from runs where ended_at is null
    union all select 'exchange', id from exchanges where phase < 4
    union all select 'delivery', id from deliveries where settled_at is null
    union all select 'request for a thread', id from thread_bindings where state = 1
    union all select 'thread of nobody', b.id from thread_bindings b join sessions s on s.id = b.child where b.state = 2 and s.state <> 1
    union all select 'thread left open', b.id from thread_bindings b where b.state = 4 and b.thread_id is not null
      and not exists (select from deliveries where thread_binding = b.id and kind = 4)
    union all select 'thread closed under its session', b.id from thread_bindings b where b.state = 2
      and exists (select from deliveries where thread_binding = b.id and kind = 4)`.execute(db);
  return rows;
}
