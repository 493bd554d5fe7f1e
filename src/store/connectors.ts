import { sql } from "kysely";
import type { DeliveryRoute } from "../domain/session.ts";
import type { Db } from "./database.ts";

/** A channel a connector carries. */
export interface ConnectorChannel {
  readonly channel: string;
  /** Accounts of ours on it; empty = any. */
  readonly accountIds: readonly string[];
  readonly abilities: readonly string[];
}

export interface Connector {
  readonly connectorId: string;
  readonly channels: readonly ConnectorChannel[];
}

/** Stores what a connector carries; replaces what it carried before. */
export async function upsertConnector(db: Db, { connectorId, channels }: Connector, now: Date): Promise<void> {
  const names = channels.map(({ channel }) => channel);
  const accounts = JSON.stringify(Object.fromEntries(channels.map((each) => [each.channel, each.accountIds])));
  const abilities = JSON.stringify(Object.fromEntries(channels.map((each) => [each.channel, each.abilities])));
  await sql`
    insert into connectors (connector_id, channels, accounts, abilities, registered_at, last_seen_at)
    values (${connectorId}, ${names}::text[], ${accounts}, ${abilities}, ${now}, ${now})
    on conflict (connector_id) do update set channels = excluded.channels, accounts = excluded.accounts,
      abilities = excluded.abilities, registered_at = excluded.registered_at, last_seen_at = excluded.last_seen_at`.execute(
    db,
  );
}

export async function findConnector(db: Db, connectorId: string): Promise<Connector | undefined> {
  const row = await db
    .selectFrom("connectors")
    .select(["channels", "accounts", "abilities"])
    .where("connector_id", "=", connectorId)
    .executeTakeFirst();
  return row && { connectorId, channels: toChannels(row) };
}

/** Whether a connector that was heard of lately carries a route and has an ability there. */
export async function hasLiveConnector(
  db: Db,
  { route, ability, heardSince }: { route: DeliveryRoute; ability: string; heardSince: Date },
): Promise<boolean> {
  const { channel, accountId = "" } = route;
  const rows = await db
    .selectFrom("connectors")
    .select(["channels", "accounts", "abilities"])
    .where(sql<boolean>`${channel} = any(channels)`)
    .where("last_seen_at", ">=", heardSince)
    .execute();
  return rows
    .flatMap(toChannels)
    .filter((carried) => carried.channel === channel && carried.abilities.includes(ability))
    .some(({ accountIds }) => accountIds.length === 0 || accountIds.includes(accountId));
}

function toChannels(row: { channels: string[]; accounts: string; abilities: string }): ConnectorChannel[] {
  const accounts = JSON.parse(row.accounts) as Record<string, string[]>;
  const abilities = JSON.parse(row.abilities) as Record<string, string[]>;
  return row.channels.map((channel) => ({
    channel,
    accountIds: accounts[channel] ?? [],
    abilities: abilities[channel] ?? [],
  }));
}

/** Notes that a connector is alive; written at most every few seconds. */
export async function touchConnector(db: Db, connectorId: string, now: Date): Promise<void> {
  await db
    .updateTable("connectors")
    .set({ last_seen_at: now })
    .where("connector_id", "=", connectorId)
    .where("last_seen_at", "<", new Date(now.getTime() - 5_000))
    .execute();
}
