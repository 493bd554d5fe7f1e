import { sql } from "kysely";
import { ackDelivery } from "../src/app/ack-delivery.ts";
import { claimDeliveries } from "../src/app/claim-deliveries.ts";
import type { App } from "../src/app/context.ts";
import { registerConnector } from "../src/app/register-connector.ts";
import { type Bench, type Figures, median, rounded } from "./bench.ts";
import { openBenchApp } from "./open.ts";

const connectors = 8;
const rounds = 3;
const perRound = 200;
const batch = 5;
const defaultRows = 100_000;
const mostChats = 10_000;
const principal = { role: "operator", name: "bench" } as const;

/** Claim deliveries, five at a time, and confirm each, at growing numbers of pending ones. Promise: flat within 20 %. */
export const outbox: Bench = {
  name: "outbox",
  summary:
    "deliveries claimed + confirmed per second at 1k and 100k pending (--rows 1000000 for more; promise: flat within 20 %)",
  async run({ rows = defaultRows }): Promise<Figures> {
    const sizes = [1000, 100_000, 1_000_000].filter((size) => size <= Math.max(rows, 1000));
    const rates = new Map<number, number>();
    for (const size of sizes) rates.set(size, await measure(size));
    const values = [...rates.values()];
    return {
      ...Object.fromEntries(sizes.map((size) => [`at_${size}_per_second`, rounded(rates.get(size)!)])),
      slowest_to_fastest: rounded(Math.min(...values) / Math.max(...values)),
    };
  },
};

async function measure(rows: number): Promise<number> {
  const bench = await openBenchApp();
  try {
    const { app } = bench;
    await fill(app, rows);
    const names = Array.from({ length: connectors }, (_, n) => `bench-${n}`);
    for (const connectorId of names) {
      const channels = [{ channel: "bench", accountIds: [], abilities: [] }];
      await registerConnector(app, principal, app.ids.uuid(), { connectorId, channels });
    }
    await claimAndAck(app, names, 50);
    const rates: number[] = [];
    for (let round = 0; round < rounds; round++) {
      const start = performance.now();
      const done = await claimAndAck(app, names, perRound);
      rates.push(done / ((performance.now() - start) / 1000));
    }
    return median(rates);
  } finally {
    await bench.close();
  }
}

/** Deliveries spread evenly over chats, the first of each ready, the others behind it. */
async function fill(app: App, rows: number): Promise<void> {
  const chats = Math.min(rows, mostChats);
  const now = app.clock.now();
  await sql`
    insert into sessions (id, session_id, session_key, agent_id, kind, chat_type, address_id, root_id, path, created_at, updated_at)
    overriding system value
    values (1, gen_random_uuid(), 'agent:main:bench', 'main', 6, 4, 1, 1, array[1], ${now}, ${now})`.execute(app.db);
  for (let done = 0; done < rows / chats; done += 5) {
    await sql`
      insert into deliveries (delivery_id, effect_key, session, kind, channel, to_address, lane, state, next_at, text, created_at)
      select gen_random_uuid(), chat || '/' || n, 1, 2, 'bench', 'chat-' || chat, 'chat-' || chat, case when n = 1 then 1 else 0 end,
        ${now}, 'hello', ${now}
      from generate_series(${done + 1}::int, ${Math.min(done + 5, Math.ceil(rows / chats))}::int) n, generate_series(1, ${chats}::int) chat
      order by n, chat`.execute(app.db);
  }
  await sql`vacuum analyze`.execute(app.db);
  // What loading left to be written would slow the first claims down.
  await sql`checkpoint`.execute(app.db);
}

async function claimAndAck(app: App, names: readonly string[], count: number): Promise<number> {
  let done = 0;
  const carry = async (connectorId: string): Promise<void> => {
    while (done < count) {
      const request = { principal, connectorId, requestId: app.ids.uuid(), maxDeliveries: batch, waitMs: 0 };
      const { deliveries } = await claimDeliveries(app, request);
      if (deliveries.length === 0) throw new Error("no delivery was ready");
      for (const { deliveryId, leaseToken = "" } of deliveries) await ackDelivery(app, { deliveryId, leaseToken });
      done += deliveries.length;
    }
  };
  await Promise.all(names.map(carry));
  return done;
}
