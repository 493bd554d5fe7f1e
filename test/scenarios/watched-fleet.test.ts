import { setTimeout as sleep } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { describe, expect, onTestFinished, test } from "vitest";
import { createAgentSessions, RunState, SessionKind } from "../../src/client/index.ts";
import { parseConfig } from "../../src/config/schema.ts";
import { createAgentHost } from "../../src/host/index.ts";
import { testApp } from "../support/app.ts";
import { closeAfterFile } from "../support/close-after-file.ts";
import { collect } from "../support/collect.ts";
import { addRun, addSession, append, delta, end, hold } from "../support/runs-by-hand.ts";
import { testServer } from "../support/server.ts";

const config = parseConfig({ server: { drainNoticeMs: 0, drainGraceSeconds: 1 } });
/** Both take a few seconds on an idle machine. */
const busyMachineMs = 60_000;
const runs = 50;
const watchersPerRun = 4;
const listers = 3;

test(
  "C174: health answers within a second while 200 watchers, 50 runs and a storm of lists go on",
  async () => {
    const app = await testApp({ config });
    const server = await testServer({ app });
    const client = createAgentSessions({ baseUrl: server.url });
    const keys = Array.from({ length: runs }, (_, n) => `agent:main:direct:${n}`);
    for (const key of keys) await addSession(app, { key });
    const runIds = await Promise.all(
      keys.map(async (session) => (await client.sendMessage({ session, message: "go", waitMs: 0 })).run!.runId),
    );
    const watching = runIds.flatMap((runId) =>
      Array.from({ length: watchersPerRun }, () =>
        collect(client.watchRun(runId, { afterSequence: 0 }), (frame) => frame),
      ),
    );
    const busy = new AbortController();
    onTestFinished(() => busy.abort());
    const listing = Array.from({ length: listers }, async () => {
      while (!busy.signal.aborted) {
        await client.sessions.listSessions({ pageSize: 200, messageLimit: 20, kinds: [SessionKind.OTHER] });
      }
    });
    const host = createAgentHost({
      baseUrl: server.url,
      hostId: "h",
      maxConcurrentRuns: runs,
      agents: {
        main: async (turn) => {
          for (let n = 0; n < 8; n++) await turn.say(`word ${n} `);
          return undefined;
        },
      },
    });
    closeAfterFile(() => host.stop());
    await host.start();

    const { health } = server.clients();
    let slowestMs = 0;
    const asking = (async () => {
      while (!busy.signal.aborted) {
        const askedAt = performance.now();
        await health.check({});
        slowestMs = Math.max(slowestMs, performance.now() - askedAt);
        await sleep(20);
      }
    })();
    const seen = await Promise.all(watching);
    busy.abort();
    await Promise.all([...listing, asking]);
    expect(seen.map((frames) => frames.at(-1)?.type)).toEqual(Array(runs * watchersPerRun).fill("end"));
    for (const frames of seen) {
      const sequences = frames.flatMap((frame) => (frame.type === "event" ? [Number(frame.sequence)] : []));
      expect(sequences).toEqual(sequences.map((_, place) => place + 1));
    }
    expect(slowestMs).toBeLessThan(1_000);
  },
  busyMachineMs,
);

describe("watchers that stop reading, with their sockets open", () => {
  const written = 12 * 1024 * 1024;
  const watchers = 10;
  const pieceBytes = 8 * 1024;
  const piecesAtOnce = 64;

  test(
    "C141, C185: cost the writer nothing and the server a bounded buffer, and miss nothing when they go on",
    async () => {
      const app = await testApp({ config });
      const server = await testServer({ app });
      const run = await addRun(app, await addSession(app));
      await hold(app, run);
      const stalled = Array.from({ length: watchers }, () => {
        const { runs } = server.clients();
        return runs.watchRun({ runId: run.runId, afterSequence: 0n })[Symbol.asyncIterator]();
      });
      for (const watcher of stalled) await watcher.next();
      const before = await heldBytes();
      const text = "x".repeat(pieceBytes);
      let offset = 0;
      while (offset < written) {
        const pieces = Array.from({ length: piecesAtOnce }, (_, n) => delta(offset + n * pieceBytes, text));
        await append(app, run, pieces);
        offset += piecesAtOnce * pieceBytes;
      }
      await end(app, run);
      // Client and server share this process, so both their buffers are counted, and what the collector has not got to: a
      // quarter of what the watchers have missed together.
      expect((await heldBytes()) - before).toBeLessThan((watchers * written) / 4);

      const { run: ended } = (await server.clients().runs.getRun({ runId: run.runId })) ?? {};
      expect(ended?.state).toBe(RunState.COMPLETED);
      const [watcher] = stalled;
      let sequence = 1n;
      for (let next = await watcher!.next(); !next.done; next = await watcher!.next()) {
        if (next.value.frame.case === "event") expect(next.value.sequence).toBe(++sequence);
      }
      expect(sequence).toBe(ended?.lastSequence);
      await Promise.all(stalled.slice(1).map((other) => other.return?.()));
    },
    busyMachineMs,
  );
});

/** Bytes in use after collections, outside the heap of JavaScript too. Freeing those takes a moment and a second look. */
async function heldBytes(): Promise<number> {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  let held = Number.POSITIVE_INFINITY;
  for (let looks = 0; looks < 5; looks++) {
    collect();
    await sleep(50);
    const { heapUsed, external } = process.memoryUsage();
    held = Math.min(held, heapUsed + external);
  }
  return held;
}
