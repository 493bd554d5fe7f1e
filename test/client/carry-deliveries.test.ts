import { beforeEach, expect, test } from "vitest";
import { type CarryOptions, carryDeliveries, createAgentSessions, NotPosted } from "../../src/client/index.ts";
import type { Delivery } from "../../src/domain/delivery.ts";
import type { Session } from "../../src/domain/session.ts";
import { connectorToken } from "../support/access-world.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { addDelivery, deliveryOf } from "../support/deliveries.ts";
import { addLane } from "../support/seed.ts";
import { quickDrain, type TestServer, testServer } from "../support/server.ts";
import { addRequester, bindingOf, spawnInThread, threadConnector, threadDeliveries } from "../support/threads.ts";

let app: TestApp;
let server: TestServer;
let session: Session;
beforeEach(async () => {
  app = await testApp({ config: quickDrain() });
  server = await testServer({ app });
  session = await addLane(app);
});

/** Carries until `post` was asked once for each delivery and the last is settled. */
async function carryAll(
  made: readonly Delivery[],
  post: CarryOptions["post"],
  bindThread?: CarryOptions["bindThread"],
): Promise<void> {
  const client = createAgentSessions({ baseUrl: server.url, token: await connectorToken(app) });
  const end = new AbortController();
  let left = made.length;
  const settled = Promise.withResolvers<void>();
  const asked =
    <A, B>(carry: (delivery: A) => Promise<B>) =>
    async (delivery: A) => {
      left -= 1;
      if (left === 0) settled.resolve();
      return carry(delivery);
    };
  const carrying = carryDeliveries(client.channels, {
    connectorId: "c",
    channels: [{ channel: "telegram" }],
    signal: end.signal,
    post: asked(post),
    ...(bindThread && { bindThread: asked(bindThread) }),
  });
  await settled.promise;
  end.abort();
  await carrying;
  client.close();
}

test("what posting comes to is told: posted, later, never, or nobody knows", async () => {
  const posts: Record<string, () => Promise<string | undefined>> = {
    posted: async () => "m1",
    later: () => Promise.reject(new NotPosted("busy", { retryAfterMs: 60_000 })),
    never: () => Promise.reject(new NotPosted("no such chat", { retryable: false })),
    unclear: () => Promise.reject(new Error("timed out")),
  };
  const made: Delivery[] = [];
  for (const text of Object.keys(posts))
    made.push(await addDelivery(app, session, { text, route: { channel: "telegram", to: text } }));
  await carryAll(made, ({ text }) => posts[text]!());
  const after = await Promise.all(made.map((each) => deliveryOf(app, each)));
  expect(after.map(({ state, error, providerMessageId }) => [state, error?.message ?? providerMessageId])).toEqual([
    ["delivered", "m1"],
    ["ready", "busy"],
    ["dead", "no such chat"],
    ["unknown", "timed out"],
  ]);
});

test("S6.9: a request for a thread goes to bindThread, everything else to post; without bindThread there is none", async () => {
  await threadConnector(app);
  const requester = await addRequester(app);
  const [one, other] = [await spawnInThread(app, requester), await spawnInThread(app, requester)];
  const asked = [...(await threadDeliveries(app, one)), ...(await threadDeliveries(app, other))];
  const text = await addDelivery(app, session);
  await carryAll([text], async () => "m1");
  expect((await bindingOf(app, one)).state).toBe("requested");
  await carryAll(
    asked,
    async () => "m1",
    async ({ deliveryId }) => {
      if (deliveryId === asked[1]!.deliveryId) throw new NotPosted("no topics here", { retryable: false });
      return { threadId: "T9", providerMessageId: "m2" };
    },
  );
  expect(await bindingOf(app, one)).toMatchObject({ state: "bound", route: { to: "t1", threadId: "T9" } });
  expect((await deliveryOf(app, asked[0]!)).providerMessageId).toBe("m2");
  expect(await bindingOf(app, other)).toMatchObject({ state: "failed", detail: "no topics here" });
});

test("a connector the service refuses is told so", async () => {
  const client = createAgentSessions({ baseUrl: server.url, token: await connectorToken(app) });
  const options = { connectorId: "c", channels: [{ channel: "discord" }], post: async () => "" };
  await expect(carryDeliveries(client.channels, { ...options, signal: new AbortController().signal })).rejects.toThrow(
    /discord/,
  );
  client.close();
});
