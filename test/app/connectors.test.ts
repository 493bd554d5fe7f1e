import { beforeEach, describe, expect, test } from "vitest";
import { listDeliveries } from "../../src/app/list-deliveries.ts";
import type { Session } from "../../src/domain/session.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { addDelivery, TestConnector } from "../support/deliveries.ts";
import { addLane, operator } from "../support/seed.ts";

let app: TestApp;
let session: Session;
let connector: TestConnector;
beforeEach(async () => {
  app = await testApp();
  session = await addLane(app);
  connector = await new TestConnector(app).register("telegram");
});

describe("connectors", () => {
  const limited = {
    role: "connector",
    name: "tg",
    channels: ["telegram"],
    accounts: ["b1"],
  } as const;
  const onAccount = (channel: string, accountId?: string) =>
    addDelivery(app, session, {
      text: `${channel}/${accountId ?? ""}`,
      route: { channel, to: "x", ...(accountId && { accountId }) },
    });

  test("C85: get what their accounts may carry, as it was captured, and nothing else", async () => {
    await onAccount("telegram", "b1");
    await onAccount("telegram", "b2");
    await onAccount("telegram");
    await onAccount("discord", "b1");
    const b2 = await new TestConnector(app).register({ channel: "telegram", accountIds: ["b2"] });
    expect((await b2.claim()).map(({ text }) => text)).toEqual(["telegram/b2"]);
    const mine = await new TestConnector(app, limited).register("telegram");
    expect((await mine.claim()).map(({ route }) => route)).toEqual([{ channel: "telegram", to: "x", accountId: "b1" }]);
    expect((await connector.claim()).map(({ text }) => text)).toEqual(["telegram/"]);
    const query = { states: [], includeAttempts: false };
    const listed = await listDeliveries(app, limited, query, { size: 0 });
    expect(listed.deliveries.map(({ text }) => text)).toEqual(["telegram/b1"]);
    await expect(
      listDeliveries(app, limited, { ...query, session: session.sessionKey }, { size: 0 }),
    ).rejects.toMatchObject({ facts: { kind: "visibility_denied" } });
  });

  test("may register what their credential carries alone, and not take another one's name", async () => {
    const mine = new TestConnector(app, limited, "tg");
    await expect(mine.register("discord")).rejects.toMatchObject({ facts: { channel: "discord" } });
    await expect(mine.register({ channel: "telegram", accountIds: ["b2"] })).rejects.toMatchObject({
      facts: { accountId: "b2" },
    });
    await new TestConnector(app, operator, "tg").register("telegram", "discord");
    await expect(mine.register("telegram")).rejects.toMatchObject({ facts: { channel: "discord" } });
  });

  test("must be registered before they claim", async () => {
    await expect(new TestConnector(app).claim()).rejects.toMatchObject({ facts: { kind: "connector_not_found" } });
  });
});
