import fc from "fast-check";
import { beforeAll, expect, test } from "vitest";
import type { App } from "../../src/app/context.ts";
import { watchRun } from "../../src/app/watch-run.ts";
import type { Run } from "../../src/domain/run.ts";
import type { RunEventBody } from "../../src/domain/run-event.ts";
import { testApp } from "../support/app.ts";
import { addRun, addSession, append, delta, end, hold, note } from "../support/runs-by-hand.ts";
import { operator } from "../support/session-tools.ts";

let app: App;
beforeAll(async () => {
  app = await testApp();
});

/** The dumb reader: everything there is, by one plain query. */
async function readPlain(run: Run): Promise<[number, RunEventBody][]> {
  const rows = await app.db
    .selectFrom("run_events")
    .select(["seq", "body"])
    .where("run", "=", run.id)
    .orderBy("seq")
    .execute();
  return rows.map((row) => [Number(row.seq), JSON.parse(row.body.toString("utf8"))]);
}

/** Watches until the run has ended, across cuts: each stream is left after the given number of frames. */
async function watchAcrossCuts(run: Run, cuts: readonly number[], pauses: readonly boolean[], excludeDeltas: boolean) {
  const seen: [number, RunEventBody][] = [];
  let afterSequence = 0;
  for (let stream = 0; ; stream++) {
    const leaving = new AbortController();
    const request = { runId: run.runId, afterSequence, excludeDeltas, idleMs: 5 };
    let left = cuts[stream] ?? Number.POSITIVE_INFINITY;
    for await (const frame of watchRun(app, operator, request, leaving.signal)) {
      expect(frame.sequence).toBeGreaterThanOrEqual(afterSequence);
      afterSequence = frame.sequence;
      if (frame.type === "event") seen.push([frame.sequence, frame.event.body]);
      if (frame.type === "end") return seen;
      if (pauses[seen.length % pauses.length]) await new Promise(setImmediate);
      if (--left === 0) leaving.abort();
    }
  }
}

const writes = fc.array(
  fc.record({ deltas: fc.nat(300), notes: fc.nat(2), hint: fc.boolean(), breath: fc.boolean() }),
  {
    minLength: 1,
    maxLength: 6,
  },
);
const readings = fc.array(
  fc.record({
    cuts: fc.array(fc.integer({ min: 1, max: 120 }), { maxLength: 4 }),
    pauses: fc.array(fc.boolean(), { minLength: 1, maxLength: 3 }),
    excludeDeltas: fc.boolean(),
  }),
  { minLength: 1, maxLength: 4 },
);

test("whatever the interleaving of writes, cuts and pauses, a watcher sees what a plain read shows", async () => {
  await fc.assert(
    fc.asyncProperty(writes, readings, async (batches, readers) => {
      const run = await addRun(app, await addSession(app));
      const watching = readers.map((each) => watchAcrossCuts(run, each.cuts, each.pauses, each.excludeDeltas));
      for (const { deltas, notes, hint, breath } of batches) {
        const bodies = [
          ...Array.from({ length: deltas }, (_, n) => delta(n)),
          ...Array.from({ length: notes }, () => note("n")),
        ];
        if (bodies.length > 0) await append(app, run, bodies, { hint });
        if (breath) await new Promise(setImmediate);
      }
      await hold(app, run);
      await end(app, run);
      const plain = await readPlain(run);
      expect(plain.map(([sequence]) => sequence)).toEqual(plain.map((_, place) => place + 1));
      for (const [place, seen] of (await Promise.all(watching)).entries()) {
        const { excludeDeltas } = readers[place]!;
        expect(seen).toEqual(excludeDeltas ? plain.filter(([, body]) => body.type !== "text_delta") : plain);
      }
    }),
    { seed: 20, numRuns: 15 },
  );
});
