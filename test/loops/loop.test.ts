import { expect, test } from "vitest";
import { runLoop } from "../../src/loops/loop.ts";
import { recordedLog, silentLog } from "../support/log.ts";

test("ticks until the signal aborts, one tick at a time, and finishes the last", async () => {
  const stop = new AbortController();
  let running = 0;
  let ticks = 0;
  await runLoop({ name: "test", everyMs: 1, signal: stop.signal, log: silentLog }, async () => {
    expect(++running).toBe(1);
    await new Promise(setImmediate);
    ticks += 1;
    if (ticks === 5) stop.abort();
    await new Promise(setImmediate);
    running -= 1;
  });
  expect([ticks, running]).toEqual([5, 0]);
});

test("logs a tick that fails, with the loop's name, and goes on", async () => {
  const stop = new AbortController();
  const log = recordedLog();
  let ticks = 0;
  await runLoop({ name: "test", everyMs: 1, signal: stop.signal, log }, async () => {
    ticks += 1;
    if (ticks === 3) stop.abort();
    if (ticks === 1) throw new Error("no luck");
  });
  expect(ticks).toBe(3);
  expect(log.lines).toMatchObject([{ level: "error", facts: { loop: "test" } }]);
});

test("does not tick when it is stopped before it began, and ends a pause at once", async () => {
  let ticks = 0;
  const count = async () => void ticks++;
  await runLoop({ name: "test", signal: AbortSignal.abort(), log: silentLog }, count);
  expect(ticks).toBe(0);
  const stop = new AbortController();
  const loop = runLoop({ name: "test", everyMs: 3_600_000, signal: stop.signal, log: silentLog }, count);
  stop.abort();
  await loop;
  expect(ticks).toBe(1);
});
