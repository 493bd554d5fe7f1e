import { sql } from "kysely";
import { beforeAll, expect, test } from "vitest";
import { connectWakeups } from "../../src/store/postgres-wakeups.ts";
import { maxPayloadBytes, packHints, unpackHints } from "../../src/store/wakeup-payload.ts";
import type { Topic, Wakeups } from "../../src/store/wakeups.ts";
import { closeAfterFile } from "../support/close-after-file.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { silentLog } from "../support/log.ts";

let database: TestDatabase;
let here: Wakeups;
let there: Wakeups;

async function open(): Promise<Wakeups> {
  const wakeups = await connectWakeups(database.url, { log: silentLog });
  closeAfterFile(() => wakeups.close());
  return wakeups;
}

/** Resolves with the topics heard once there are `count` of them. */
function hear(wakeups: Wakeups, topics: readonly Topic[], count = 1): Promise<Topic[]> {
  const heard: Topic[] = [];
  return new Promise((resolve) => {
    const stop = wakeups.subscribe(topics, (topic) => {
      heard.push(topic);
      if (heard.length < count) return;
      stop();
      resolve(heard);
    });
  });
}

beforeAll(async () => {
  database = await testDatabase();
  here = await open();
  there = await open();
});

test("a hint wakes local listeners before publish returns, and other replicas soon", async () => {
  const remote = hear(there, ["run:a"]);
  const local: Topic[] = [];
  const stop = here.subscribe(["run:a", "agent:main"], (topic) => local.push(topic));
  here.publish(["run:a", "host:elsewhere"]);
  expect(local).toEqual(["run:a"]);
  expect(await remote).toEqual(["run:a"]);
  stop();
  here.publish(["run:a"]);
  expect(local).toEqual(["run:a"]);
});

test("a replica does not hear its own hints twice", async () => {
  let heard = 0;
  const stop = here.subscribe(["run:own"], () => heard++);
  const remote = hear(there, ["run:own-end"]);
  here.publish(["run:own"]);
  here.publish(["run:own-end"]);
  await remote;
  // What `there` sends now arrives behind what `here` sent before.
  const back = hear(here, ["run:back"]);
  there.publish(["run:back"]);
  await back;
  expect(heard).toBe(1);
  stop();
});

test("C186: more hints than one NOTIFY can carry all arrive", async () => {
  const topics = Array.from({ length: 1_000 }, (_, n): Topic => `run:${"ü".repeat(20)}-${n}`);
  const remote = hear(there, topics, topics.length);
  here.publish(topics);
  expect(new Set(await remote)).toEqual(new Set(topics));
});

test("C186: payloads fit, and one topic that cannot fit becomes a call to look at everything", () => {
  const topics = Array.from({ length: 500 }, (_, n): Topic => `host:"${"ü".repeat(n % 100)}"\n${n}`);
  const payloads = packHints("me", topics);
  for (const payload of payloads) expect(Buffer.byteLength(payload)).toBeLessThanOrEqual(maxPayloadBytes);
  expect(payloads.flatMap((payload) => unpackHints(payload)!.topics)).toEqual(topics);
  expect(packHints("me", ["run:a", `host:${"x".repeat(8_000)}`])).toEqual(['["me","*"]']);
  expect(packHints("me", [])).toEqual([]);
  expect([unpackHints("nonsense"), unpackHints("[1]"), unpackHints("[]"), unpackHints("{}")]).toEqual(
    Array(4).fill(undefined),
  );
});

test("a hint for everything wakes everyone", async () => {
  const remote = hear(there, ["run:untold"]);
  here.publish([`host:${"x".repeat(8_000)}`]);
  expect(await remote).toEqual(["run:untold"]);
});

test("a listener that throws does not keep others from hearing", () => {
  const stopBad = here.subscribe(["run:throws"], () => {
    throw new Error("mine");
  });
  let heard = false;
  const stop = here.subscribe(["run:throws"], () => {
    heard = true;
  });
  here.publish(["run:throws"]);
  expect(heard).toBe(true);
  stopBad();
  stop();
});

test("whoever waits is woken after the listening connection was lost, and hears again", async () => {
  const woken = hear(there, ["run:lost"]);
  await killBackends("agentsessions listener");
  expect(await woken).toEqual(["run:lost"]);
  const heard = hear(there, ["run:after"]);
  here.publish(["run:after"]);
  expect(await heard).toEqual(["run:after"]);
});

test("hints published while the notifier's connection is down are sent when it is back", async () => {
  const heard = hear(there, ["run:during"]);
  await killBackends("agentsessions notifier");
  here.publish(["run:during"]);
  expect(await heard).toEqual(["run:during"]);
});

test("close may be called with hints on their way, and nothing is published after it", async () => {
  const brief = await open();
  const heard = hear(there, ["run:last"]);
  brief.publish(["run:last"]);
  await brief.close();
  expect(await heard).toEqual(["run:last"]);
  brief.publish(["run:last"]);
});

test("a database that cannot be reached at first is an error of connectWakeups", async () => {
  const unreachable = connectWakeups("postgres://nobody@localhost/nothing?host=%2Fnonexistent", { log: silentLog });
  await expect(unreachable).rejects.toThrow(/ENOENT/);
});

async function killBackends(name: string): Promise<void> {
  await sql`select pg_terminate_backend(pid, 5000) from pg_stat_activity
    where application_name = ${name} and datname = current_database()`.execute(database.db);
}
