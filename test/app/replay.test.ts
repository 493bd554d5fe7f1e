import { randomUUID } from "node:crypto";
import { beforeAll, expect, test } from "vitest";
import { replayed } from "../../src/app/replay.ts";
import type { Principal } from "../../src/domain/principal.ts";
import { inTransaction } from "../../src/store/transaction.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { operator } from "../support/session-tools.ts";

let app: TestApp;
beforeAll(async () => {
  app = await testApp();
});

interface Fields {
  requestId: string;
  principal?: Principal;
  method?: string;
  payload?: unknown;
}

function once(fields: Fields, run: () => Promise<unknown>) {
  return inTransaction(app.db, (tx) =>
    replayed(app, tx, { principal: operator, method: "Test", payload: null, ...fields }, run),
  );
}

test("runs once and answers a repeat with the first result", async () => {
  const requestId = randomUUID();
  let ran = 0;
  const run = async () => ({ ran: ++ran, text: "\u0000\ud800" });
  expect(await once({ requestId }, run)).toEqual({ result: { ran: 1, text: "\u0000\ud800" }, deduplicated: false });
  expect(await once({ requestId }, run)).toEqual({ result: { ran: 1, text: "\u0000\ud800" }, deduplicated: true });
});

test("the order of members is no other payload, another value is", async () => {
  const requestId = randomUUID();
  await once({ requestId, payload: { a: 1, b: [{ c: 2, d: 3 }] } }, async () => 1);
  const same = { requestId, payload: { b: [{ d: 3, c: 2 }], a: 1 } };
  expect(await once(same, async () => 2)).toEqual({ result: 1, deduplicated: true });
  const other = { requestId, payload: { b: [{ d: 3, c: 2 }], a: 2 } };
  await expect(once(other, async () => 2)).rejects.toMatchObject({
    facts: { kind: "request_id_reused", requestId, method: "Test" },
  });
});

test("ids are apart by method and by caller", async () => {
  const requestId = randomUUID();
  const fields = [{}, { method: "Other" }, { principal: { role: "operator", name: "else" } as const }];
  const results = [];
  for (const [n, more] of fields.entries()) results.push(await once({ requestId, ...more }, async () => n));
  expect(results.map(({ result }) => result)).toEqual([0, 1, 2]);
});

test("a failure forgets the id", async () => {
  const requestId = randomUUID();
  await expect(once({ requestId }, () => Promise.reject(new Error("broke")))).rejects.toThrow("broke");
  expect(await once({ requestId, payload: "other" }, async () => 7)).toEqual({ result: 7, deduplicated: false });
});

test("C14: of two at once the second waits for the first, and runs when that one fails", async () => {
  const requestId = randomUUID();
  const entered = Promise.withResolvers<void>();
  const leave = Promise.withResolvers<void>();
  const first = once({ requestId }, async () => {
    entered.resolve();
    await leave.promise;
    throw new Error("broke");
  });
  await entered.promise;
  const second = once({ requestId }, async () => "second");
  leave.resolve();
  await expect(first).rejects.toThrow("broke");
  expect(await second).toEqual({ result: "second", deduplicated: false });
});
