import { randomUUID } from "node:crypto";
import { type Expression, type RawBuilder, sql } from "kysely";
import { beforeAll, expect, test } from "vitest";
import type { Db } from "../../src/store/database.ts";
import { findDelivery } from "../../src/store/deliveries.ts";
import { promoteDeliveryStatement } from "../../src/store/delivery-lane.ts";
import {
  claimDeliveriesStatement,
  endDeliveryStatement,
  lostDeliveriesStatement,
} from "../../src/store/delivery-leases.ts";
import { type DeliveryFilter, deliveryListQuery } from "../../src/store/delivery-list.ts";
import { testDatabase } from "../support/database.ts";
import { explainWrite } from "../support/plans.ts";

let db: Db;
const now = new Date("2026-01-01T00:00:00.000Z");

/** 20,000 delivered, 20,000 waiting in one chat, 5,000 ready in chats of two accounts, 50 claimed, 20 dead. */
beforeAll(async () => {
  db = (await testDatabase()).db;
  await sql`
    insert into sessions (id, session_id, session_key, agent_id, kind, chat_type, address_id, root_id, path, created_at, updated_at)
    values (1, gen_random_uuid(), 'agent:main:direct:1', 'main', 6, 1, 1, 1, array[1], ${now}, ${now})`.execute(db);
  const fill = (
    state: number,
    lane: RawBuilder<unknown>,
    count: number,
    more: RawBuilder<unknown> = sql`null, null, null`,
  ) =>
    sql`
      insert into deliveries (delivery_id, effect_key, session, kind, channel, account_id, lane, state, next_at, text, created_at,
        settled_at, lease_token, lease_expires_at)
      select gen_random_uuid(), ${state}::text || '/' || n, 1, 2, 'telegram', 'b' || n % 2, ${lane}, ${state}, ${now}, 'x', ${now}, ${more}
      from generate_series(1, ${count}::int) n`.execute(db);
  await fill(4, sql`'d' || n`, 20, sql`${now}::timestamptz, null, null`);
  await fill(3, sql`'d' || n % 100`, 20_000, sql`${now}::timestamptz, null, null`);
  await fill(0, sql`'long'`, 20_000);
  await fill(1, sql`'r' || n`, 5000);
  await fill(2, sql`'c' || n`, 50, sql`null, 't' || n, ${now}::timestamptz`);
  await sql`analyze`.execute(db);
});

const explain = (statement: Expression<unknown>) => explainWrite(db, statement, "deliveries");

test.each([
  [1, "deliveries_ready", [{ channel: "telegram" }]],
  [10, "deliveries_ready", [{ channel: "telegram" }, { channel: "discord" }]],
  [
    10,
    "deliveries_ready_account",
    [
      { channel: "telegram", accountId: "b1" },
      { channel: "telegram", accountId: "b7" },
    ],
  ],
])("a claim of %i reads heads by %s alone, however many are pending", async (wanted, index, targets) => {
  const leaseTokens = Array.from({ length: wanted }, (_, n) => `lease ${n}`);
  const claim = { requestId: randomUUID(), connectorId: "c", targets, leaseTokens, leaseMs: 1 };
  const plan = await explain(claimDeliveriesStatement(claim, now));
  expect(plan.sequential).toBe(false);
  expect(plan.indexes).toContain(index);
  expect(plan.touched).toBeLessThan(300);
});

test.each(["long", "d1"])("promoting in the chat %s reads its first waiting delivery alone", async (lane) => {
  const plan = await explain(promoteDeliveryStatement(lane));
  expect(plan.sequential).toBe(false);
  expect(plan.touched).toBeLessThan(10);
});

test("settling the head of a long chat reads it and the one behind it", async () => {
  await sql`update deliveries set state = 2, lease_token = 'x', lease_expires_at = ${now}
    where id = (select min(id) from deliveries where lane = 'long')`.execute(db);
  const id = await db.selectFrom("deliveries").select("delivery_id").where("lease_token", "=", "x").executeTakeFirst();
  const head = await findDelivery(db, id!.delivery_id);
  const plan = await explain(endDeliveryStatement(db, head!, { state: "delivered" }, now));
  expect(plan.sequential).toBe(false);
  expect(plan.touched).toBeLessThan(20);
});

test("a sweep reads what is claimed", async () => {
  const plan = await explain(lostDeliveriesStatement(now, 200));
  expect(plan.sequential).toBe(false);
  expect(plan.touched).toBeLessThan(200);
});

test.each<[string, DeliveryFilter]>([
  ["of all", { states: [] }],
  ["of dead and unknown ones", { states: ["dead", "unknown"] }],
  ["of dead ones on a channel", { states: ["dead"], channel: "telegram" }],
  ["of pending ones", { states: ["waiting", "ready"] }],
  ["of claimed ones of a session", { states: ["claimed"], session: 1n }],
])("a page %s does not walk what was delivered", async (_, filter) => {
  const plan = await explain(deliveryListQuery(db, filter, undefined, 51));
  expect(plan.sequential).toBe(false);
  expect(plan.touched).toBeLessThan(300);
});
