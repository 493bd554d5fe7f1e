import { randomUUID } from "node:crypto";
import type { KyselyPlugin } from "kysely";
import { beforeAll, describe, expect, test } from "vitest";
import type { App } from "../../src/app/context.ts";
import { type WatchFrame, type WatchRequest, watchRun } from "../../src/app/watch-run.ts";
import type { Run } from "../../src/domain/run.ts";
import { connectDatabase } from "../../src/store/connect.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { closeAfterFile } from "../support/close-after-file.ts";
import { addRun, addRuns, addSession, append, delta, end, hold, note } from "../support/runs-by-hand.ts";
import { operator } from "../support/session-tools.ts";

let app: TestApp;
beforeAll(async () => {
  app = await testApp();
});

/** Another process on the same database. */
async function replica(): Promise<App> {
  const db = connectDatabase(app.database.url);
  closeAfterFile(() => db.destroy());
  return { ...(await testApp({ replicaOf: app })), db };
}

/** A watch read frame by frame. */
class Watcher {
  readonly frames: WatchFrame[] = [];
  readonly #leaving = new AbortController();
  readonly #stream: AsyncGenerator<WatchFrame>;

  constructor(run: Pick<Run, "runId">, request: Partial<WatchRequest> = {}, on: App = app) {
    const full = { runId: run.runId, excludeDeltas: false, idleMs: 15_000, ...request };
    this.#stream = watchRun(on, operator, full, this.#leaving.signal);
  }

  async next(): Promise<WatchFrame> {
    const { done, value } = await this.#stream.next();
    if (done) throw new Error("the stream is over");
    this.frames.push(value);
    return value;
  }

  async take(count: number): Promise<WatchFrame[]> {
    const taken: WatchFrame[] = [];
    while (taken.length < count) taken.push(await this.next());
    return taken;
  }

  async rest(): Promise<WatchFrame[]> {
    const rest: WatchFrame[] = [];
    for await (const frame of this.#stream) rest.push(frame);
    return rest;
  }

  leave(): void {
    this.#leaving.abort();
  }
}

async function queuedRun(): Promise<Run> {
  return addRun(app, await addSession(app));
}

function sequences(frames: readonly WatchFrame[]): number[] {
  return frames.filter((frame) => frame.type === "event").map((frame) => frame.sequence);
}

describe("position", () => {
  test("C133: a watch cut after 7 resumes with 8, 9, 10, then live; two watchers get everything", async () => {
    const run = await queuedRun();
    await append(
      app,
      run,
      [1, 2, 3, 4, 5, 6].map((n) => delta(n)),
    );
    const first = new Watcher(run, { afterSequence: 0 });
    expect(sequences(await first.take(7))).toEqual([1, 2, 3, 4, 5, 6, 7]);
    first.leave();
    expect(await first.rest()).toEqual([]);
    await append(app, run, [note("a"), note("b"), note("c")]);

    const watchers = [new Watcher(run, { afterSequence: 7 }), new Watcher(run, { afterSequence: 7 })];
    for (const watcher of watchers) expect(sequences(await watcher.take(3))).toEqual([8, 9, 10]);
    const live = watchers.map((watcher) => watcher.next());
    await append(app, run, [note("live")]);
    expect(sequences(await Promise.all(live))).toEqual([11, 11]);
    for (const watcher of watchers) watcher.leave();
  });

  test("C132: positions belong to the run, not to the connection or the process", async () => {
    const run = await queuedRun();
    await append(app, run, [note("a")]);
    const otherProcess = await replica();
    const here = new Watcher(run, { afterSequence: 0 });
    const there = new Watcher(run, { afterSequence: 0 }, otherProcess);
    expect(await here.take(2)).toEqual(await there.take(2));
    here.leave();
    there.leave();
  });

  test("a run nobody knows is an error before the first frame", async () => {
    await expect(new Watcher({ runId: randomUUID() }).next()).rejects.toMatchObject({
      facts: { kind: "run_not_found" },
    });
  });
});

describe("first frame", () => {
  test("C138: it is the state the run is in, and events follow its position", async () => {
    const run = await queuedRun();
    const watcher = new Watcher(run);
    expect(await watcher.next()).toMatchObject({
      type: "snapshot",
      sequence: 1,
      run: { state: "ready", queue: { position: 1 } },
    });
    await hold(app, run);
    expect(await watcher.next()).toMatchObject({ type: "event", sequence: 2, event: { body: { state: "running" } } });
    watcher.leave();
  });

  test("C138: a run that has ended shows that, and the stream ends", async () => {
    const run = await queuedRun();
    await hold(app, run);
    await end(app, run);
    expect(await new Watcher(run).rest()).toMatchObject([
      { type: "snapshot", sequence: 3, run: { state: "completed", reply: "done" } },
      { type: "end", sequence: 3, reason: "run_ended", run: { state: "completed" } },
    ]);
  });
});

describe("end", () => {
  test("C134: an ended run replays what is left and ends, at, below and beyond its end", async () => {
    const run = await queuedRun();
    await hold(app, run);
    await end(app, run);
    const replay = async (afterSequence: number) => {
      const frames = await new Watcher(run, { afterSequence }).rest();
      return [sequences(frames), frames.at(-1)];
    };
    const ended = { type: "end", reason: "run_ended", run: { state: "completed", reply: "done" } };
    expect(await replay(0)).toMatchObject([[1, 2, 3], ended]);
    expect(await replay(2)).toMatchObject([[3], ended]);
    expect(await replay(3)).toMatchObject([[], ended]);
    expect(await replay(99)).toMatchObject([[], ended]);
  });

  test("C136: watching a queued run stays open until it has run", async () => {
    const run = await queuedRun();
    const watcher = new Watcher(run, { idleMs: 20 });
    expect((await watcher.take(4)).map((frame) => frame.type)).toEqual(["snapshot", "idle", "idle", "idle"]);
    await hold(app, run);
    await end(app, run);
    const rest = await watcher.rest();
    expect(sequences(rest)).toEqual([2, 3]);
    expect(rest.at(-1)).toMatchObject({ type: "end", reason: "run_ended" });
  });

  test("an old stream ends, and says at which position to go on", async () => {
    const run = await queuedRun();
    const frames = await new Watcher(run, { afterSequence: 0, maxAgeMs: 30 }).rest();
    expect(frames).toMatchObject([
      { type: "event", sequence: 1 },
      { type: "end", reason: "max_age", sequence: 1 },
    ]);
  });

  test("a draining process ends its streams, also those with more to send", async () => {
    const run = await queuedRun();
    await append(
      app,
      run,
      Array.from({ length: 400 }, (_, n) => delta(n)),
    );
    const drain = new AbortController();
    const draining = { ...app, draining: drain.signal };
    const silent = new Watcher(run, {}, draining);
    const busy = new Watcher(run, { afterSequence: 0 }, draining);
    await silent.next();
    await busy.take(3);
    drain.abort();
    expect(await silent.rest()).toEqual([{ type: "end", reason: "draining", sequence: 401 }]);
    expect(await busy.rest()).toEqual([{ type: "end", reason: "draining", sequence: 3 }]);
  });
});

describe("filters and pruning", () => {
  test("C140: deltas are left out when asked, and the position moves over them all the same", async () => {
    const run = await queuedRun();
    await append(app, run, [delta(0), delta(1), note("between"), delta(2)]);
    const watcher = new Watcher(run, { afterSequence: 0, excludeDeltas: true, idleMs: 20 });
    expect(sequences(await watcher.take(2))).toEqual([1, 4]);
    expect(await watcher.next()).toEqual({ type: "idle", sequence: 5 });
    await append(app, run, [delta(3), note("after")]);
    expect(sequences([await watcher.next()])).toEqual([7]);
    watcher.leave();
    const again = new Watcher(run, { afterSequence: 5, excludeDeltas: true });
    expect(sequences([await again.next()])).toEqual([7]);
    again.leave();
  });

  test("a block of pruned deltas is one event that counts the positions before it", async () => {
    const run = await queuedRun();
    await append(app, run, [delta(0), delta(1), { type: "deltas_pruned", count: 3 }, note("after")]);
    await app.db.deleteFrom("run_events").where("run", "=", run.id).where("seq", "in", [2n, 3n]).execute();
    const frames = await new Watcher(run, { afterSequence: 0 }).take(3);
    expect(sequences(frames)).toEqual([1, 4, 5]);
    expect(frames[1]).toMatchObject({ event: { body: { type: "deltas_pruned", count: 3 } } });
    const within = new Watcher(run, { afterSequence: 2 });
    expect(sequences(await within.take(2))).toEqual([4, 5]);
    within.leave();
  });
});

test("long stretches left out or pruned are walked in bounded steps, to the same end", async () => {
  const run = await queuedRun();
  await append(
    app,
    run,
    Array.from({ length: 9000 }, (_, n) => delta(n)),
  );
  await append(app, run, [note("after the deltas")]);
  await hold(app, run);
  await end(app, run);
  expect(sequences(await new Watcher(run, { afterSequence: 0, excludeDeltas: true }).rest())).toEqual([
    1, 9002, 9003, 9004,
  ]);
  const body = Buffer.from(JSON.stringify({ type: "deltas_pruned", count: 9000 }));
  await app.db
    .deleteFrom("run_events")
    .where("run", "=", run.id)
    .where("seq", ">", 1n)
    .where("seq", "<", 9001n)
    .execute();
  await app.db
    .updateTable("run_events")
    .set({ type: 8, body })
    .where("run", "=", run.id)
    .where("seq", "=", 9001n)
    .execute();
  expect(sequences(await new Watcher(run, { afterSequence: 0 }).rest())).toEqual([1, 9001, 9002, 9003, 9004]);
  expect(sequences(await new Watcher(run, { afterSequence: 4000 }).rest())).toEqual([9001, 9002, 9003, 9004]);
});

describe("time", () => {
  test("C176: a silent stream says that it lives, with its position; a stream with traffic does not", async () => {
    const run = await queuedRun();
    const watcher = new Watcher(run, { idleMs: 30 });
    expect((await watcher.take(3)).slice(1)).toEqual([
      { type: "idle", sequence: 1 },
      { type: "idle", sequence: 1 },
    ]);
    watcher.leave();
  });

  test("C184: an event is there at once, not with the next one", async () => {
    const run = await queuedRun();
    const watcher = new Watcher(run, { idleMs: 60_000 });
    await watcher.next();
    for (let sequence = 2; sequence <= 6; sequence++) {
      const next = watcher.next();
      await append(app, run, [note("one")]);
      expect((await next).sequence).toBe(sequence);
    }
    watcher.leave();
  });

  test("a lost hint makes a watcher late, never wrong", async () => {
    const run = await queuedRun();
    const watcher = new Watcher(run);
    await watcher.next();
    const next = watcher.next();
    await append(app, run, [note("unannounced")], { hint: false });
    expect(await next).toMatchObject({ sequence: 2 });
    watcher.leave();
  });
});

describe("slow and gone", () => {
  test("C142: leaving changes nothing about the run, and lets go of the hints", async () => {
    const run = await queuedRun();
    await hold(app, run);
    const watcher = new Watcher(run);
    await watcher.next();
    const parked = watcher.rest();
    watcher.leave();
    expect(await parked).toEqual([]);
    const stored = await app.db.selectFrom("runs").selectAll().where("id", "=", run.id).executeTakeFirstOrThrow();
    expect(stored).toMatchObject({ state: 2, cancel_requested_at: null });
  });

  test("C141, C185: a watcher that stops reading holds one batch, and costs the writer nothing", async () => {
    const run = await queuedRun();
    let reads = 0;
    const counting = { ...app, db: app.db.withPlugin(countQueries(() => reads++)) };
    const stalled = new Watcher(run, { afterSequence: 0 }, counting);
    await stalled.next();
    const before = reads;
    for (let n = 0; n < 20; n++)
      await append(
        app,
        run,
        Array.from({ length: 100 }, (_, each) => delta(each, "x".repeat(200))),
      );
    expect(reads).toBe(before);
    const rest = await stalled.take(2000);
    expect(sequences(rest)).toEqual(Array.from({ length: 2000 }, (_, n) => n + 2));
    expect(reads - before).toBeGreaterThanOrEqual(2000 / 256);
    stalled.leave();
  });
});

function countQueries(count: () => void): KyselyPlugin {
  return {
    transformQuery: ({ node }) => {
      count();
      return node;
    },
    transformResult: async ({ result }) => result,
  };
}

describe("many", () => {
  test("C165: every watcher gets exactly 1..N in order while two connections write", async () => {
    const run = await queuedRun();
    const other = await replica();
    const total = 301;
    const starts = [0, undefined, 0, 5];
    const watchers = Array.from({ length: 40 }, (_, n) => {
      const afterSequence = starts[n % starts.length];
      return new Watcher(run, afterSequence === undefined ? {} : { afterSequence }, n % 2 ? app : other);
    });
    const reading = watchers.map((watcher) => watcher.rest());
    const write = async (writer: App) => {
      for (let n = 0; n < 50; n++) await append(writer, run, [delta(n), note("x"), delta(n)]);
    };
    await Promise.all([write(app), write(other)]);
    await hold(app, run);
    await end(app, run);
    for (const frames of await Promise.all(reading)) {
      const from = frames[0]?.type === "snapshot" ? frames[0].sequence : (frames[0]?.sequence ?? 0) - 1;
      expect(sequences(frames)).toEqual(Array.from({ length: total + 2 - from }, (_, n) => from + n + 1));
      expect(frames.at(-1)).toMatchObject({ type: "end", reason: "run_ended" });
    }
  });

  test("a thousand watchers behind at once share a few reads", async () => {
    const run = await queuedRun();
    let reads = 0;
    const counting = { ...app, db: app.db.withPlugin(countQueries(() => reads++)) };
    const watchers = Array.from({ length: 1000 }, () => new Watcher(run, { afterSequence: 1 }, counting));
    const next = watchers.map((watcher) => watcher.next());
    await append(app, run, [note("to all")]);
    expect(new Set(sequences(await Promise.all(next)))).toEqual(new Set([2]));
    // One look for the run per watcher at its start; the reads of events are shared.
    expect(reads - 1000).toBeLessThan(20);
    for (const watcher of watchers) watcher.leave();
  });

  test("watchers of many runs that fall behind together catch up in a few reads", async () => {
    const runs = await addRuns(app, await addSession(app), 128);
    let reads = 0;
    const counting = { ...app, db: app.db.withPlugin(countQueries(() => reads++)) };
    const watchers = runs.map((run) => new Watcher(run, { afterSequence: 0 }, counting));
    await Promise.all(watchers.map((watcher) => watcher.next()));
    const next = watchers.map((watcher) => watcher.next());
    for (const run of runs) await append(app, run, [note("news")], { hint: false });
    const before = reads;
    app.wakeups.publish(runs.map((run) => `run:${run.runId}` as const));
    expect(new Set(sequences(await Promise.all(next)))).toEqual(new Set([2]));
    expect(reads - before).toBeLessThanOrEqual(4);
    for (const watcher of watchers) watcher.leave();
  });
});
