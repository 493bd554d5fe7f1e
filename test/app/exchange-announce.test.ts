import { randomUUID } from "node:crypto";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { ackDelivery } from "../../src/app/ack-delivery.ts";
import { claimDeliveries } from "../../src/app/claim-deliveries.ts";
import { prune } from "../../src/app/prune.ts";
import { registerConnector } from "../../src/app/register-connector.ts";
import { updateSession } from "../../src/app/update-session.ts";
import type { Run } from "../../src/domain/run.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { agentIds, deliveriesOf, ExchangePair, endOpenRuns, pairConfig, stepsOf } from "../support/exchange-pair.ts";
import { operator } from "../support/seed.ts";
import { addSession, send } from "../support/session-tools.ts";

let app: TestApp;
let pair: ExchangePair;
beforeAll(async () => {
  app = await testApp({ config: pairConfig() });
});
beforeEach(async () => {
  await endOpenRuns(app);
  pair = await ExchangePair.open(app);
});

async function stateOf(run: Run) {
  return (await pair.exchangeOf(run)).state;
}

describe("the announce", () => {
  test.each(["ANNOUNCE_SKIP", "ANNOUNCE_SKIP\n", "", "NO_REPLY"])("C90: %j posts nothing", async (reply) => {
    const asked = await pair.ask();
    await pair.sayAll("blue", "REPLY_SKIP", reply);
    expect(await stateOf(asked)).toMatchObject({ phase: "closed", announceOutcome: "skipped" });
    expect(await deliveriesOf(app, asked)).toEqual([]);
  });

  test.each(["announce_skip", "Nothing new.\nANNOUNCE_SKIP"])("C90: %j is posted as it is", async (reply) => {
    const asked = await pair.ask();
    await pair.sayAll("blue", "REPLY_SKIP", reply);
    expect(await deliveriesOf(app, asked)).toMatchObject([{ text: reply }]);
  });

  test("S5.8: without a route there is no step, and the record says so", async () => {
    const mute = new ExchangePair(app, pair.requester, await addSession(app, `agent:otter:direct:${randomUUID()}`));
    const asked = await mute.ask();
    await mute.sayAll("blue", "REPLY_SKIP");
    expect(await stepsOf(app, asked)).toEqual(["otter primary", "nova ping_pong/1"]);
    expect(await stateOf(asked)).toMatchObject({ endReason: "reply_skip", announceOutcome: "no_route" });
  });

  test("C30, C32: what is announced reaches the channel once; pending becomes delivered", async () => {
    const asked = await pair.ask();
    await pair.sayAll("blue", "REPLY_SKIP", "posted");
    expect(await stateOf(asked)).toMatchObject({ announceOutcome: "pending" });
    const connectorId = randomUUID();
    const channels = [{ channel: "telegram", accountIds: [], abilities: [] }];
    await registerConnector(app, operator, randomUUID(), { connectorId, channels });
    const claim = { principal: operator, requestId: randomUUID(), connectorId, maxDeliveries: 100, waitMs: 0 };
    for (let open = true; open; ) {
      const { deliveries } = await claimDeliveries(app, { ...claim, requestId: randomUUID() });
      for (const { deliveryId, leaseToken } of deliveries) {
        await ackDelivery(app, { deliveryId, leaseToken: leaseToken! });
      }
      open = deliveries.length > 0;
    }
    expect(await stateOf(asked)).toMatchObject({ announceOutcome: "delivered" });
    expect(await deliveriesOf(app, asked)).toHaveLength(1);
  });

  test("C30: an operator's send to a session with a channel is announced there, without turns", async () => {
    const asked = await pair.ask("tell them", { principal: operator });
    await pair.sayAll("I will.", "Hello, people.");
    expect(await stepsOf(app, asked)).toEqual(["otter primary", "otter announce"]);
    expect(await deliveriesOf(app, asked)).toMatchObject([{ text: "Hello, people." }]);
    const elsewhere = await send(app, { session: pair.requester.sessionId });
    expect(elsewhere.run.exchange).toBeUndefined();
    await pair.say("just an answer");
  });

  test("S7.3: a turn denied by the send policy fails; so does its exchange's loop", async () => {
    const asked = await pair.ask();
    await pair.say("blue");
    const session = pair.requester.sessionId;
    await updateSession(app, { principal: operator, requestId: randomUUID(), session, change: { sendPolicy: "deny" } });
    expect(await pair.host.claim({ agentIds })).toEqual([]);
    expect(await stateOf(asked)).toMatchObject({ phase: "announce", endReason: "failed" });
    await pair.say("ANNOUNCE_SKIP");
  });
});

test("S7.3: an announce whose session was denied in the meantime is denied, and says so", async () => {
  const asked = await pair.ask();
  await pair.sayAll("blue", "REPLY_SKIP");
  const session = pair.target.sessionId;
  await updateSession(app, { principal: operator, requestId: randomUUID(), session, change: { sendPolicy: "deny" } });
  expect(await pair.host.claim({ agentIds })).toEqual([]);
  expect(await stateOf(asked)).toMatchObject({ phase: "closed", announceOutcome: "denied" });
  expect(await deliveriesOf(app, asked)).toEqual([]);
});

describe("keeping", () => {
  test("closed exchanges go with their runs, never while a delivery is open", async () => {
    const asked = await pair.ask();
    await pair.sayAll("blue", "REPLY_SKIP", "posted");
    const other = await pair.ask();
    await pair.sayAll("blue", "REPLY_SKIP", "ANNOUNCE_SKIP");
    app.clock.advance(31 * 24 * 3_600_000);
    await prune(app);
    await prune(app);
    expect(await pair.exchangeOf(asked)).toMatchObject({ runIds: [] });
    await expect(pair.exchangeOf(other)).rejects.toThrow("exchange_not_found");
    await app.db
      .updateTable("deliveries")
      .set({ state: 3, settled_at: app.clock.now(), lease_token: null, lease_expires_at: null })
      .execute();
    await prune(app);
    await expect(pair.exchangeOf(asked)).rejects.toThrow("exchange_not_found");
  });
});
