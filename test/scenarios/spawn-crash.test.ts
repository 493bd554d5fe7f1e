import { randomUUID } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { sql } from "kysely";
import { beforeAll, describe, expect, test } from "vitest";
import { type ClaimedDelivery, type ClaimedRun, Role } from "../../src/client/index.ts";
import { type ServingCli, serveCli, temporaryDirectory } from "../support/cli.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { type LossyWay, lossyWay } from "../support/lossy-way.ts";
import { clientsOf, type TestClients, transportTo } from "../support/server.ts";

/*
 * S6.11: from the accepted spawn to the confirmed announce, kill -9 at every step loses nothing and doubles nothing. A server
 * is killed between two calls, in the middle of a transaction (a lock of the test holds it up until the server is dead), or
 * when a call has committed and its answer is on its way (the way loses it). Who called repeats the call, unchanged.
 */

type Call = keyof typeof transactions;

/** Where a call is held up: the table it waits for, and one it has written to by then. Undefined: one statement is all it does. */
const transactions = {
  SpawnSession: { waitsFor: "spawns", wrote: "runs" },
  ClaimRuns: undefined,
  "CompleteRun of the task": { waitsFor: "exchanges", wrote: "messages" },
  "CompleteRun of the announce": { waitsFor: "deliveries", wrote: "messages" },
  BeginDelivery: undefined,
  AckDelivery: { waitsFor: "exchanges", wrote: "deliveries" },
} as const;

const pauses = [
  "the spawn was accepted",
  "the task was claimed",
  "the task was completed",
  "the announce was claimed",
  "the announce was completed",
  "the delivery was claimed",
  "the sending began",
] as const;

type Kill =
  | { readonly after: (typeof pauses)[number] }
  | { readonly during: Call; readonly when: "halfway" | "answered" };

const kills: readonly Kill[] = [
  ...pauses.map((after) => ({ after })),
  ...(Object.keys(transactions) as Call[]).flatMap((during): Kill[] => [
    ...(transactions[during] ? [{ during, when: "halfway" as const }] : []),
    { during, when: "answered" },
  ]),
];

const agentIds = Array.from({ length: 30 }, (_, n) => `nova-${n}`);
const config = {
  agents: { list: agentIds.map((id) => ({ id })) },
  runs: { leaseSeconds: 60, startDeadlineSeconds: 60 },
};
const content = "the list of boats";

let database: TestDatabase;
let way: LossyWay;
let standing: ServingCli;
let lives = 0;

async function serve(): Promise<ServingCli> {
  return serveCli(["--config", configFile], { env: { DATABASE_URL: database.url } });
}

let configFile: string;

beforeAll(async () => {
  database = await testDatabase();
  way = await lossyWay();
  configFile = join(await temporaryDirectory(), "config.json5");
  await writeFile(configFile, JSON.stringify(config));
  standing = await serve();
});

async function kill(server: ServingCli): Promise<void> {
  server.process.kill("SIGKILL");
  await expect(server.exit).rejects.toThrow("SIGKILL");
}

/** A spawn from the message that leads to it until its report is in the chat, with one kill on the way. */
class Life {
  readonly agentId: string;
  readonly channel: string;
  killed = false;
  readonly #kill: Kill;
  /** Takes over from the killed server; otherwise one is started in its place. */
  readonly #second: ServingCli | undefined;
  readonly #clients: TestClients;
  readonly #host = { hostId: `host-${lives}`, instanceId: randomUUID() };

  constructor(strike: Kill, second?: ServingCli) {
    const n = lives++;
    this.agentId = agentIds[n]!;
    this.channel = `chat${n}`;
    this.#kill = strike;
    this.#second = second;
    way.leadTo(standing.url);
    this.#clients = clientsOf(transportTo(way.url, "connect"));
  }

  async live(): Promise<void> {
    await this.#spawnFromChat();
    await this.#pause("the spawn was accepted");
    const task = await this.#claim("ClaimRuns");
    expect(task.input!.messages[0]!.parts[0]!.content.value).toMatchObject({ text: "count the boats" });
    expect(task.input!.attachments!.count).toBe(1);
    await this.#pause("the task was claimed");
    await this.#complete(task, "three boats", "CompleteRun of the task");
    await this.#pause("the task was completed");
    const announce = await this.#claim();
    await this.#pause("the announce was claimed");
    await this.#complete(announce, "There are three boats.", "CompleteRun of the announce");
    await this.#pause("the announce was completed");
    await this.#deliver();
  }

  /** The requester is asked in a chat, spawns in its turn, and has nothing to say itself. */
  async #spawnFromChat(): Promise<void> {
    const { channel, agentId } = this;
    await this.#clients.channels.registerConnector({
      requestId: randomUUID(),
      connectorId: channel,
      channels: [{ channel }],
    });
    await this.#clients.channels.receiveMessage({
      channel,
      providerMessageId: "1",
      chatType: 1,
      chatId: "ann",
      senderId: "ann",
      text: "how many boats?",
      agentId,
    });
    const asked = await this.#claim();
    const { sessions } = clientsOf(transportTo(way.url, "connect", { token: asked.runToken }));
    const attachments = [{ name: "boats.txt", content: { case: "text" as const, value: content } }];
    const spawn = { requestId: randomUUID(), task: "count the boats", attachments };
    const accepted = await this.#call("SpawnSession", () => sessions.spawnSession(spawn));
    expect(await sessions.spawnSession(spawn)).toMatchObject({
      childSessionId: accepted.childSessionId,
      exchangeId: accepted.exchangeId,
      deduplicated: true,
    });
    await this.#complete(asked, "NO_REPLY");
  }

  async #claim(call?: Call): Promise<ClaimedRun> {
    const request = { ...this.#host, requestId: randomUUID(), agentIds: [this.agentId], maxRuns: 1, waitTimeout: {} };
    const { runs } = await this.#call(call, () => this.#clients.hosts.claimRuns(request));
    const again = await this.#clients.hosts.claimRuns(request);
    expect(again.runs.map(({ leaseToken }) => leaseToken)).toEqual(runs.map(({ leaseToken }) => leaseToken));
    expect(runs).toHaveLength(1);
    return runs[0]!;
  }

  async #complete({ run, leaseToken }: ClaimedRun, text: string, call?: Call): Promise<void> {
    const lease = { runId: run!.runId, leaseToken };
    await this.#clients.hosts.heartbeatRuns({ ...this.#host, items: [lease] });
    const parts = [{ content: { case: "text" as const, value: { text } } }];
    const completion = { ...lease, message: { messageId: randomUUID(), role: Role.ASSISTANT, parts } };
    await this.#call(call, () => this.#clients.hosts.completeRun(completion));
  }

  async #deliver(): Promise<void> {
    const { channels } = this.#clients;
    const claim = { requestId: randomUUID(), connectorId: this.channel, maxDeliveries: 10, waitTimeout: {} };
    const { deliveries } = await channels.claimDeliveries(claim);
    expect(deliveries).toHaveLength(1);
    await this.#pause("the delivery was claimed");
    await this.#send(deliveries[0]!);
  }

  /** A connector that has sent confirms, and sends nothing again. */
  async #send({ delivery, leaseToken }: ClaimedDelivery): Promise<void> {
    const { channels } = this.#clients;
    const lease = { deliveryId: delivery!.deliveryId, leaseToken };
    expect(delivery!.text).toContain("Status: completed\nResult: There are three boats.");
    expect(await this.#call("BeginDelivery", () => channels.beginDelivery(lease))).toMatchObject({ maySend: true });
    await this.#pause("the sending began");
    await this.#call("AckDelivery", () => channels.ackDelivery({ ...lease, providerMessageId: "2" }));
  }

  async #pause(after: (typeof pauses)[number]): Promise<void> {
    if ("after" in this.#kill && this.#kill.after === after) await this.#killServer();
  }

  /** Makes a call; when its server is killed during it, makes it again. */
  async #call<T>(name: Call | undefined, call: () => Promise<T>): Promise<T> {
    const strike = this.#kill;
    if (this.killed || !("during" in strike) || strike.during !== name) return call();
    if (strike.when === "answered") {
      const lost = way.loseNextAnswer();
      const cut = expect(call()).rejects.toThrow();
      await lost;
      await this.#killServer();
      await cut;
    } else {
      await whileLocked(transactions[name]!, async (isWaiting) => {
        const cut = expect(call()).rejects.toThrow();
        await expect.poll(isWaiting, { timeout: 5_000, interval: 20 }).toBe(true);
        await this.#killServer();
        await cut;
      });
    }
    return call();
  }

  async #killServer(): Promise<void> {
    this.killed = true;
    const [, next] = await Promise.all([kill(standing), this.#second ?? serve()]);
    standing = next;
    way.leadTo(standing.url);
  }
}

/** Holds up whoever writes to a table, while `work` runs. */
async function whileLocked(
  { waitsFor, wrote }: { readonly waitsFor: string; readonly wrote: string },
  work: (isWaiting: () => Promise<boolean>) => Promise<void>,
): Promise<void> {
  const isWaiting = async (): Promise<boolean> => {
    const { rows } = await sql`
      select from pg_locks waits join pg_locks has on has.pid = waits.pid and has.granted
      where not waits.granted and waits.relation = ${waitsFor}::regclass
        and has.relation = ${wrote}::regclass and has.mode = 'RowExclusiveLock'`.execute(database.db);
    return rows.length > 0;
  };
  await database.db.transaction().execute(async (tx) => {
    await sql`lock table ${sql.table(waitsFor)} in share mode`.execute(tx);
    await work(isWaiting);
  });
}

/** Everything that is there of a life, counted. */
async function remains({ agentId }: Life) {
  const { rows } = await sql<Record<string, unknown>>`
    with requester as (select * from sessions where agent_id = ${agentId} and parent_id is null),
      child as (select * from sessions where agent_id = ${agentId} and parent_id is not null)
    select (select count(*)::int from requester) as requesters, (select count(*)::int from child) as children,
      (select count(*)::int from spawns p join child c on c.id = p.child where p.run_ended_at is not null and p.settled_at is not null) as settled,
      (select json_agg(json_build_array(r.exchange_step, r.state, r.attempt) order by r.id) from runs r join child c on c.id = r.session) as child_runs,
      (select count(*)::int from runs r join requester q on q.id = r.session) as requester_runs,
      (select json_agg(json_build_array(a.name, encode(a.sha256, 'hex') = encode(sha256(${content}::bytea), 'hex')))
         from attachments a join child c on c.id = a.session) as files,
      (select json_agg(json_build_array(m.role, convert_from(m.body, 'UTF8')::json -> 'parts' -> 0 ->> 'text') order by m.seq)
         from messages m join requester q on q.id = m.session) as transcript,
      (select json_agg(json_build_array(e.closed_at is not null, e.announce_outcome)) from exchanges e join child c on c.id = e.target_session) as exchanges,
      (select json_agg(json_build_array(d.kind, d.state, d.text)) from deliveries d join requester q on q.id = d.session) as deliveries`.execute(
    database.db,
  );
  return rows[0]!;
}

const [completed, delivered] = [3, 3];

async function expectOnceEach(life: Life): Promise<void> {
  expect(life.killed).toBe(true);
  const { deliveries, transcript, ...rest } = await remains(life);
  expect(rest).toEqual({
    requesters: 1,
    children: 1,
    settled: 1,
    child_runs: [
      ["primary", completed, 1],
      ["announce", completed, 1],
    ],
    requester_runs: 1,
    files: [["boats.txt", true]],
    exchanges: [[true, 2]],
  });
  const [user, assistant, announce] = [1, 2, 1];
  expect(deliveries).toEqual([
    [announce, delivered, expect.stringMatching(/^Status: completed\nResult: There are three/)],
  ]);
  const [[, , text]] = deliveries as [[number, number, string]];
  expect(transcript).toEqual([
    [user, "how many boats?"],
    [assistant, "NO_REPLY"],
    [user, text],
  ]);
}

function nameOf(strike: Kill): string {
  if ("after" in strike) return `after ${strike.after}`;
  return strike.when === "answered" ? `when ${strike.during} was answered` : `halfway through ${strike.during}`;
}

describe("C80: a server is killed", { timeout: 40_000 }, () => {
  test.each(kills.map((strike) => [nameOf(strike), strike] as const))("%s, and started again", async (_, strike) => {
    const life = new Life(strike);
    await life.live();
    await expectOnceEach(life);
  });

  const struck: readonly Kill[] = [
    { during: "SpawnSession", when: "answered" },
    { during: "CompleteRun of the task", when: "halfway" },
    { during: "CompleteRun of the announce", when: "answered" },
    { during: "AckDelivery", when: "halfway" },
  ];
  test.each(struck.map((strike) => [nameOf(strike), strike] as const))(
    "%s, and another replica goes on",
    async (_, strike) => {
      const life = new Life(strike, await serve());
      await life.live();
      await expectOnceEach(life);
    },
  );
});
