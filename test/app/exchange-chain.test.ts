import { randomUUID } from "node:crypto";
import { beforeEach, describe, expect, test } from "vitest";
import { getExchange } from "../../src/app/get-exchange.ts";
import { listExchanges } from "../../src/app/list-exchanges.ts";
import { sendMessage } from "../../src/app/send-message.ts";
import type { AppError } from "../../src/domain/errors.ts";
import type { Run } from "../../src/domain/run.ts";
import type { Session } from "../../src/domain/session.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { agentIds, pairConfig } from "../support/exchange-pair.ts";
import { operator, TestHost } from "../support/seed.ts";
import { actingAs, addSession, countRows, send } from "../support/session-tools.ts";

let app: TestApp;
let host: TestHost;
let sessions: Record<"nova" | "otter" | "quill", Session>;
beforeEach(async () => {
  app = await testApp({ config: pairConfig({ maxChainRevisits: 1, maxChainHops: 4 }) });
  host = new TestHost(app);
  const [nova, otter, quill] = await Promise.all(agentIds.map((agentId) => addSession(app, `agent:${agentId}:main`)));
  sessions = { nova: nova!, otter: otter!, quill: quill! };
});

/** Sends during a run, as its session. */
async function forward(from: Session, during: Run | undefined, to: Session): Promise<Run> {
  return (await send(app, { session: to.sessionId, principal: actingAs(from, during) })).run;
}

describe("C21: triangles", () => {
  test("the chain travels with every send, and ends where the configuration says", async () => {
    const { nova, otter, quill } = sessions;
    const start = (await send(app, { session: nova.sessionId })).run;
    const first = await forward(nova, start, otter);
    const second = await forward(otter, first, quill);
    const third = await forward(quill, second, nova);
    const fourth = await forward(nova, third, otter);
    const hops = [first, second, third, fourth].map(({ provenance }) => provenance.hop);
    expect(hops).toEqual([1, 2, 3, 4]);
    expect(new Set([first, second, third, fourth].map(({ provenance }) => provenance.chainId)).size).toBe(1);
    expect(await getExchange(app, operator, third.exchange!.exchangeId)).toMatchObject({
      chainId: first.provenance.chainId,
      hop: 3,
    });
    const before = await countRows(app, "messages");
    await expect(forward(otter, fourth, quill)).rejects.toMatchObject({
      facts: { kind: "chain_refused", limit: "maxHops", max: 4 },
    });
    expect(await countRows(app, "messages")).toBe(before);
  });

  test("coming back too often is refused, also by a send that is only checked", async () => {
    const { nova, otter } = sessions;
    const start = (await send(app, { session: nova.sessionId })).run;
    const there = await forward(nova, start, otter);
    const back = await forward(otter, there, nova);
    const again = await forward(nova, back, otter);
    const facts = { kind: "chain_refused", limit: "maxRevisits", max: 1 };
    await expect(forward(otter, again, nova)).rejects.toMatchObject({ facts });
    const principal = actingAs(otter, again);
    const check = { principal, requestId: randomUUID(), session: nova.sessionId, message: "x", waitTimeoutMs: 0 };
    await expect(sendMessage(app, { ...check, validateOnly: true })).rejects.toMatchObject({ facts });
  });

  test("a turn of the loop goes on with the chain of its exchange", async () => {
    const { nova, otter, quill } = sessions;
    await forward(nova, undefined, otter);
    await host.complete(await host.claimOne({ agentIds }), "blue");
    const turn = await host.claimOne({ agentIds });
    const onward = await forward(nova, turn.run, quill);
    expect(onward.provenance.chain).toEqual([nova, otter, nova, quill].map(({ sessionKey }) => sessionKey));
  });

  test("S8.5: the refusal names what the caller may see, and nothing else", async () => {
    const { nova, otter, quill } = sessions;
    const first = await forward(nova, undefined, quill);
    const second = await forward(quill, first, otter);
    const child = await addSession(app, "agent:otter:subagent:one", { parent: otter });
    const own = pairConfig({ maxChainHops: 2 });
    const narrow = await testApp({
      replicaOf: app,
      config: { ...own, tools: { ...own.tools, sessions: { visibility: "tree" } } },
    });
    const refused = send(narrow, { session: child.sessionId, principal: actingAs(otter, second) });
    const { facts } = (await refused.catch((error: unknown) => error)) as AppError;
    expect(facts).toEqual({
      kind: "chain_refused",
      limit: "maxHops",
      max: 2,
      chain: ["(another session)", "(another session)", otter.sessionKey, child.sessionKey],
    });
  });
});

describe("who sees an exchange", () => {
  test("S8.4: either side, operators, and nobody else; hidden and missing look the same", async () => {
    const { nova, otter, quill } = sessions;
    const run = await forward(nova, undefined, otter);
    const { exchangeId } = run.exchange!;
    const closed = pairConfig();
    const strict = await testApp({
      replicaOf: app,
      config: { ...closed, tools: { ...closed.tools, sessions: { visibility: "self" } } },
    });
    for (const side of [nova, otter]) {
      expect(await getExchange(strict, actingAs(side), exchangeId)).toMatchObject({ exchangeId });
      const { exchanges } = await listExchanges(strict, actingAs(side), { pageSize: 10, openOnly: true });
      expect(exchanges.map((each) => each.exchangeId)).toEqual([exchangeId]);
    }
    const denied = { facts: { kind: "visibility_denied", verb: "read", visibility: "self" } };
    await expect(getExchange(strict, actingAs(quill), exchangeId)).rejects.toMatchObject(denied);
    await expect(getExchange(strict, actingAs(quill), randomUUID())).rejects.toMatchObject(denied);
    expect((await listExchanges(strict, actingAs(quill), { pageSize: 10, openOnly: false })).exchanges).toEqual([]);
    await expect(getExchange(app, operator, randomUUID())).rejects.toThrow("exchange_not_found");
  });

  test("pages and filters", async () => {
    const { nova, otter, quill } = sessions;
    const runs = [];
    for (const target of [otter, quill, otter]) runs.push(await forward(nova, undefined, target));
    const ids = runs.map((run) => run.exchange!.exchangeId).toReversed();
    const first = await listExchanges(app, operator, { pageSize: 2, openOnly: false });
    const rest = await listExchanges(app, operator, { pageSize: 2, openOnly: false }, first.next);
    expect([...first.exchanges, ...rest.exchanges].map((each) => each.exchangeId)).toEqual(ids);
    expect(rest.next).toBeUndefined();
    const asked = await listExchanges(app, operator, { pageSize: 9, openOnly: true, target: quill.sessionKey });
    expect(asked.exchanges.map((each) => each.exchangeId)).toEqual([ids[1]]);
    const asking = await listExchanges(app, operator, { pageSize: 9, openOnly: true, requester: quill.sessionKey });
    expect(asking.exchanges).toEqual([]);
  });
});
