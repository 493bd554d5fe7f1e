import { sql } from "kysely";
import type { Db } from "./database.ts";

/** A process that claims runs. A host has one current instance; registering another one replaces it. */
export interface HostRegistration {
  readonly hostId: string;
  /** Identity of the process, new at every start. */
  readonly instanceId: string;
  readonly agentIds: readonly string[];
  readonly client: HostClient;
}

/** What runs a host, for people. */
export interface HostClient {
  readonly sdkName?: string;
  readonly sdkVersion?: string;
  readonly language?: string;
}

/** Makes this instance the host's current one (C149). Repeating it for the current instance does not undo a drain. */
export async function upsertHost(db: Db, host: HostRegistration, now: Date): Promise<void> {
  await sql`
    insert into hosts (host_id, instance_id, agent_ids, client, registered_at, last_seen_at)
    values (${host.hostId}, ${host.instanceId}, ${host.agentIds}::text[], ${JSON.stringify(host.client)}, ${now}, ${now})
    on conflict (host_id) do update set
      agent_ids = excluded.agent_ids, client = excluded.client, last_seen_at = excluded.last_seen_at,
      registered_at = case when hosts.instance_id = excluded.instance_id then hosts.registered_at else excluded.registered_at end,
      drained_at = case when hosts.instance_id = excluded.instance_id then hosts.drained_at end,
      instance_id = excluded.instance_id`.execute(db);
}

export interface HostStanding {
  /** Whether this instance is the host's current one and was not drained. */
  readonly mayClaim: boolean;
  readonly drainedAt?: Date;
}

/**
 * Notes that an instance claims for these agents, and says whether it may. An unknown host is registered by its claim.
 * An instance that is not the current one takes over when the current one was drained or was silent since `staleBefore`;
 * else it has been replaced. Writes nothing when the row says it all and is seconds old.
 */
export async function admitInstance(
  db: Db,
  host: Pick<HostRegistration, "hostId" | "instanceId" | "agentIds">,
  staleBefore: Date,
  now: Date,
): Promise<HostStanding> {
  if (await isNoted(db, host, now)) return { mayClaim: true };
  const { hostId, instanceId, agentIds } = host;
  await sql`
    insert into hosts (host_id, instance_id, agent_ids, registered_at, last_seen_at)
    values (${hostId}, ${instanceId}, ${agentIds}::text[], ${now}, ${now})
    on conflict (host_id) do update set
      instance_id = excluded.instance_id,
      agent_ids = case when hosts.instance_id = excluded.instance_id
        then array(select distinct id from unnest(hosts.agent_ids || excluded.agent_ids) id order by id) else excluded.agent_ids end,
      registered_at = case when hosts.instance_id = excluded.instance_id then hosts.registered_at else excluded.registered_at end,
      drained_at = case when hosts.instance_id = excluded.instance_id then hosts.drained_at end,
      last_seen_at = excluded.last_seen_at
    where hosts.instance_id = excluded.instance_id or hosts.drained_at is not null or hosts.last_seen_at < ${staleBefore}`.execute(
    db,
  );
  return findHostStanding(db, hostId, instanceId);
}

async function isNoted(
  db: Db,
  { hostId, instanceId, agentIds }: Pick<HostRegistration, "hostId" | "instanceId" | "agentIds">,
  now: Date,
): Promise<boolean> {
  const { rows } = await sql<{ noted: boolean }>`
    select instance_id = ${instanceId} and drained_at is null and last_seen_at >= ${coarsely(now)} and agent_ids @> ${agentIds}::text[] as noted
    from hosts where host_id = ${hostId}`.execute(db);
  return rows[0]?.noted ?? false;
}

/** Notes that an instance is alive, when it is the current one; written at most every few seconds. */
export async function touchHost(db: Db, hostId: string, instanceId: string, now: Date): Promise<void> {
  await sql`
    update hosts set last_seen_at = ${now}
    where host_id = ${hostId} and instance_id = ${instanceId} and last_seen_at < ${coarsely(now)}`.execute(db);
}

/** A host that was never registered has nothing against claiming. */
export async function findHostStanding(db: Db, hostId: string, instanceId: string): Promise<HostStanding> {
  const row = await db
    .selectFrom("hosts")
    .select(["instance_id", "drained_at", "registered_at"])
    .where("host_id", "=", hostId)
    .executeTakeFirst();
  if (!row) return { mayClaim: true };
  if (row.instance_id !== instanceId) return { mayClaim: false, drainedAt: row.registered_at };
  return row.drained_at ? { mayClaim: false, drainedAt: row.drained_at } : { mayClaim: true };
}

/** Agents that a host serves; none when it is not registered. */
export async function listHostAgents(db: Db, hostId: string): Promise<readonly string[]> {
  const row = await db.selectFrom("hosts").select("agent_ids").where("host_id", "=", hostId).executeTakeFirst();
  return row?.agent_ids ?? [];
}

/** Marks an instance as taking no more work; a repeat keeps the first time. A replaced or unknown instance takes none anyway. */
export async function drainInstance(db: Db, hostId: string, instanceId: string, now: Date): Promise<void> {
  await db
    .updateTable("hosts")
    .set({ drained_at: now })
    .where("host_id", "=", hostId)
    .where("instance_id", "=", instanceId)
    .where("drained_at", "is", null)
    .execute();
}

/** Last-seen times are written at this grain: a poll or a beat a second must not become a write a second. */
function coarsely(now: Date): Date {
  return new Date(now.getTime() - 5_000);
}
