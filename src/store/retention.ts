import { sql } from "kysely";
import type { Db } from "./database.ts";

/** Removes runs that ended before a time, with their events; their messages stay in the transcript. Oldest first, at most `limit`. */
export async function deleteEndedRuns(db: Db, endedBefore: Date, limit: number): Promise<number> {
  return countDeleted(
    db,
    sql`
    delete from runs where id in (
      select id from runs where ended_at is not null and ended_at <= ${endedBefore}
      order by ended_at limit ${limit} for update skip locked
    )`,
  );
}

/**
 * Removes exchanges that closed before a time, once their runs are gone and no delivery of theirs may still go out. At most
 * `limit`.
 */
export async function deleteClosedExchanges(db: Db, closedBefore: Date, limit: number): Promise<number> {
  return countDeleted(
    db,
    sql`
    delete from exchanges where id in (
      select id from exchanges x where closed_at is not null and closed_at <= ${closedBefore}
        and not exists (select from runs where exchange = x.id)
        and not exists (select from deliveries where exchange = x.id and settled_at is null)
      order by closed_at limit ${limit} for update skip locked
    )`,
  );
}

/** Forgets request ids first used before a time: a repeat after that counts as new. At most `limit`. */
export async function deleteOldRequests(db: Db, createdBefore: Date, limit: number): Promise<number> {
  return countDeleted(
    db,
    sql`
    delete from requests where (caller, method, request_id) in (
      select caller, method, request_id from requests where created_at <= ${createdBefore}
      order by created_at limit ${limit} for update skip locked
    )`,
  );
}

/** Forgets provider message ids first seen before a time: a repeat after that counts as new. At most `limit`. */
export async function deleteOldReceived(db: Db, receivedBefore: Date, limit: number): Promise<number> {
  return countDeleted(
    db,
    sql`
    delete from received_messages where (channel, account_id, chat_id, provider_message_id) in (
      select channel, account_id, chat_id, provider_message_id from received_messages where received_at <= ${receivedBefore}
      order by received_at limit ${limit} for update skip locked
    )`,
  );
}

/** Removes deliveries settled before a time, with their attempts. Oldest first, at most `limit`. */
export async function deleteSettledDeliveries(db: Db, settledBefore: Date, limit: number): Promise<number> {
  return countDeleted(
    db,
    sql`
    delete from deliveries where id in (
      select id from deliveries where settled_at is not null and settled_at <= ${settledBefore}
      order by settled_at limit ${limit} for update skip locked
    )`,
  );
}

/** Forgets hosts not heard of since a time. At most `limit`. */
export async function deleteSilentHosts(db: Db, seenBefore: Date, limit: number): Promise<number> {
  return countDeleted(
    db,
    sql`
    delete from hosts where host_id in (
      select host_id from hosts where last_seen_at <= ${seenBefore} limit ${limit} for update skip locked
    )`,
  );
}

/** Forgets audit events from before a time: those among the `limit` oldest. Ids are the order of time closely enough. */
export async function deleteOldAuditEvents(db: Db, createdBefore: Date, limit: number): Promise<number> {
  return countDeleted(
    db,
    sql`
    delete from audit_events where id in (
      select id from (select id, created_at from audit_events order by id limit ${limit} for update skip locked) oldest
      where created_at <= ${createdBefore}
    )`,
  );
}

async function countDeleted(db: Db, statement: ReturnType<typeof sql>): Promise<number> {
  const result = await statement.execute(db);
  return Number(result.numAffectedRows ?? 0n);
}
