import { sql } from "kysely";
import { ackDelivery } from "../src/app/ack-delivery.ts";
import { claimDeliveries } from "../src/app/claim-deliveries.ts";
import type { App } from "../src/app/context.ts";
import { registerConnector } from "../src/app/register-connector.ts";
import { type Bench, type Figures, median, rounded } from "./bench.ts";
import { openBenchApp } from "./open.ts";

const connectors = 8;
const leastTurns = 9;
const perTurn = 200;
const batch = 5;
const perChat = 5;
const defaultRows = 100_000;
const principal = { role: "operator", name: "bench" } as const;

/** Claim deliveries, five at a time, and confirm each, at growing numbers of pending ones. Promise: flat within 20 %. */
export const outbox: Bench = {
  name: "outbox",
  summary:
    "deliveries claimed + confirmed per second at 1k and 100k pending (--rows 1000000 for more; promise: flat within 20 %)",
  async run({ rows = defaultRows, seconds }): Promise<Figures> {
    const sizes = [1000, 100_000, 1_000_000].filter((size) => size <= Math.max(rows, 1000));
    await using open = new AsyncDisposableStack();
    const outboxes: Outbox[] = [];
    for (const size of sizes) outboxes.push(open.adopt(await openOutbox(size), (each) => each.close()));
    // In short turns, forth and back, so that what the machine does besides falls on all sizes alike.
    const end = performance.now() + seconds * sizes.length * 1000;
    for (let turn = 0; turn < leastTurns || performance.now() < end; turn++) {
      for (const each of turn % 2 === 0 ? outboxes : outboxes.toReversed()) await each.takeTurn();
    }
    const toSmallest = outboxes.map(({ rates }) => median(rates.map((rate, turn) => rate / outboxes[0]!.rates[turn]!)));
    return {
      ...Object.fromEntries(outboxes.map(({ size, rates }) => [`at_${size}_per_second`, rounded(median(rates))])),
      slowest_to_fastest: rounded(Math.min(...toSmallest) / Math.max(...toSmallest)),
      turns: outboxes[0]!.rates.length,
    };
  },
};

/** A database with that many pending deliveries, and connectors at work on it. */
interface Outbox {
  readonly size: number;
  /** Deliveries a second, of each turn. */
  readonly rates: number[];
  takeTurn(): Promise<void>;
  close(): Promise<void>;
}

async function openOutbox(size: number): Promise<Outbox> {
  const bench = await openBenchApp();
  const { app } = bench;
  await addSession(app);
  const chats = size / perChat;
  let filled = 0;
  const fill = async (count: number): Promise<void> => {
    for (const last = filled + count; filled < last; ) {
      const some = Math.min(chats, last - filled);
      await addDeliveries(app, { from: filled, count: some, chats });
      filled += some;
    }
  };
  await fill(size);
  await sql`vacuum analyze`.execute(app.db);
  // What loading left to be written would slow the first claims down.
  await sql`checkpoint`.execute(app.db);
  const names = Array.from({ length: connectors }, (_, n) => `bench-${n}`);
  for (const connectorId of names) {
    const channels = [{ channel: "bench", accountIds: [], abilities: [] }];
    await registerConnector(app, principal, app.ids.uuid(), { connectorId, channels });
  }
  await fill(await claimAndAck(app, names, perTurn));
  const rates: number[] = [];
  return {
    size,
    rates,
    async takeTurn() {
      const start = performance.now();
      const done = await claimAndAck(app, names, perTurn);
      rates.push(done / ((performance.now() - start) / 1000));
      await fill(done);
    },
    close: () => bench.close(),
  };
}

async function addSession(app: App): Promise<void> {
  const now = app.clock.now();
  await sql`
    insert into sessions (id, session_id, session_key, agent_id, kind, chat_type, address_id, root_id, path, created_at, updated_at)
    overriding system value
    values (1, gen_random_uuid(), 'agent:main:bench', 'main', 6, 4, 1, 1, array[1], ${now}, ${now})`.execute(app.db);
}

/**
 * One delivery for each of so many chats, in turn: ready when its chat has none, else behind the others. Their ids are those
 * of the service, which grow with time: how an index is spread over the disk decides much of what a write costs.
 */
async function addDeliveries(
  app: App,
  { from, count, chats }: { from: number; count: number; chats: number },
): Promise<void> {
  const now = app.clock.now();
  const ids = Array.from({ length: count }, () => app.ids.uuid());
  await sql`
    insert into deliveries (delivery_id, effect_key, session, kind, channel, to_address, lane, state, next_at, text, created_at)
    select id, id || '/primary', 1, 2, 'bench', lane, lane,
      case when exists (select from deliveries d where d.lane = chat.lane and d.state in (1, 2)) then 0 else 1 end,
      ${now}, 'hello', ${now}
    from unnest(${ids}::uuid[]) with ordinality made (id, n)
    cross join lateral (select 'chat-' || (${from}::bigint + n) % ${chats}::bigint as lane) chat
    order by n`.execute(app.db);
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
