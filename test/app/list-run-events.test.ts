import { beforeAll, expect, test } from "vitest";
import type { App } from "../../src/app/context.ts";
import { type ListRunEventsRequest, listRunEvents } from "../../src/app/list-run-events.ts";
import type { Run } from "../../src/domain/run.ts";
import { testApp } from "../support/app.ts";
import { addRun, addSession, append, delta, end, hold, note } from "../support/runs-by-hand.ts";
import { operator } from "../support/session-tools.ts";

let app: App;
beforeAll(async () => {
  app = await testApp();
});

async function list(run: Run, request: Partial<ListRunEventsRequest> = {}, signal?: AbortSignal, on: App = app) {
  const full = { runId: run.runId, afterSequence: 0, pageSize: 100, excludeDeltas: false, waitMs: 0, ...request };
  const { events, ...rest } = await listRunEvents(on, operator, full, signal);
  return { sequences: events.map((event) => event.sequence), ...rest };
}

async function runWith(events: number): Promise<Run> {
  const run = await addRun(app, await addSession(app));
  if (events > 1)
    await append(
      app,
      run,
      Array.from({ length: events - 1 }, (_, n) => delta(n)),
    );
  return run;
}

test("pages join: a page ends where the next begins, whatever its size", async () => {
  const run = await runWith(700);
  for (const pageSize of [1, 255, 256, 257, 700, 1000]) {
    const seen: number[] = [];
    let afterSequence = 0;
    do {
      const page = await list(run, { afterSequence, pageSize });
      expect(page.sequences.length).toBe(Math.min(pageSize, 700 - afterSequence));
      seen.push(...page.sequences);
      afterSequence = page.lastSequence;
    } while (afterSequence < 700 && pageSize > 1);
    expect(seen).toEqual(Array.from({ length: pageSize === 1 ? 1 : 700 }, (_, n) => n + 1));
  }
});

test("run_ended stands on the last page alone", async () => {
  const run = await runWith(3);
  await hold(app, run);
  expect((await list(run)).runEnded).toBe(false);
  await end(app, run);
  expect(await list(run, { pageSize: 4 })).toEqual({ sequences: [1, 2, 3, 4], lastSequence: 4, runEnded: false });
  expect(await list(run, { afterSequence: 4 })).toEqual({ sequences: [5], lastSequence: 5, runEnded: true });
  expect(await list(run, { afterSequence: 9, waitMs: 20_000 })).toEqual({
    sequences: [],
    lastSequence: 9,
    runEnded: true,
  });
});

test("waits for the first event, and answers with nothing when the time is up", async () => {
  const run = await runWith(1);
  const next = list(run, { afterSequence: 1, waitMs: 20_000 });
  await append(app, run, [note("a"), note("b")]);
  expect(await next).toEqual({ sequences: [2, 3], lastSequence: 3, runEnded: false });
  expect(await list(run, { afterSequence: 3, waitMs: 20 })).toEqual({
    sequences: [],
    lastSequence: 3,
    runEnded: false,
  });
});

test("C140: deltas left out do not end a wait, and the position moves over them", async () => {
  const run = await runWith(1);
  const next = list(run, { afterSequence: 1, waitMs: 20_000, excludeDeltas: true });
  await append(app, run, [delta(0), delta(1)]);
  await append(app, run, [note("seen"), delta(2)]);
  const { sequences, lastSequence } = await next;
  expect(sequences).toEqual([4]);
  expect(lastSequence).toBe(5);
  expect(await list(run, { afterSequence: 5, excludeDeltas: true })).toMatchObject({ sequences: [], lastSequence: 5 });
});

test("a draining process and a caller that leaves end a wait with an empty page", async () => {
  const run = await runWith(1);
  const drain = new AbortController();
  const caller = new AbortController();
  const waits = [
    list(run, { afterSequence: 1, waitMs: 50_000 }, undefined, { ...app, draining: drain.signal }),
    list(run, { afterSequence: 1, waitMs: 50_000 }, caller.signal),
  ];
  drain.abort();
  caller.abort();
  for (const wait of waits) expect(await wait).toEqual({ sequences: [], lastSequence: 1, runEnded: false });
});

test("large events make pages of about a megabyte; one larger event comes alone", async () => {
  const run = await runWith(1);
  const large = "x".repeat(300_000);
  await append(
    app,
    run,
    Array.from({ length: 10 }, (_, n) => delta(n, large)),
  );
  await append(app, run, [delta(10, "y".repeat(3_000_000)), note("after")]);
  const page = await list(run, { afterSequence: 1 });
  expect(page.sequences.length).toBe(4);
  expect(page.lastSequence).toBe(5);
  const rest: number[] = [];
  for (let afterSequence = 1; afterSequence < 13; ) {
    const { sequences, lastSequence } = await list(run, { afterSequence });
    rest.push(...sequences);
    afterSequence = lastSequence;
  }
  expect(rest).toEqual(Array.from({ length: 12 }, (_, n) => n + 2));
});
