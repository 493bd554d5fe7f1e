import { type Kysely, sql } from "kysely";

/** API tokens, waits in progress (for cycles), the audit log. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table tokens (
      id bigint generated always as identity primary key,
      token_id uuid not null unique,
      name text not null check (name <> ''),
      role smallint not null check (role between 1 and 3),
      agents text[] not null default '{}',
      channels text[] not null default '{}',
      accounts text[] not null default '{}',
      token_hash bytea not null unique check (octet_length(token_hash) = 32),
      created_at timestamptz(3) not null,
      expires_at timestamptz(3),
      revoked_at timestamptz(3),
      last_used_at timestamptz(3),
      constraint tokens_host_has_agents check (role <> 2 or cardinality(agents) > 0),
      constraint tokens_connector_has_channels check (role <> 3 or cardinality(channels) > 0)
    )`.execute(db);

  await sql`
    create table waits (
      wait_id uuid primary key,
      waiter_session bigint not null,
      target_session bigint not null,
      target_run uuid not null,
      expires_at timestamptz(3) not null
    )`.execute(db);
  await sql`create index waits_waiter on waits (waiter_session)`.execute(db);

  await sql`
    create table audit_events (
      id bigint generated always as identity primary key,
      created_at timestamptz(3) not null,
      principal text not null,
      acting_as text,
      rpc text not null,
      session_key text,
      session_id uuid,
      run_id uuid,
      allowed boolean not null,
      reason text,
      request_id uuid,
      constraint audit_events_reason check (allowed = (reason is null))
    )`.execute(db);
  await sql`create index audit_events_created_at on audit_events (created_at)`.execute(db);
  await sql`create index audit_events_session on audit_events (session_key, id desc) where session_key is not null`.execute(
    db,
  );
  await sql`create index audit_events_principal on audit_events (principal, id desc)`.execute(db);
  // Sends are most of the log and are found without it: accepting a message writes no entry here.
  await sql`create index audit_events_rpc on audit_events (rpc, id desc) where rpc <> 'SendMessage'`.execute(db);
  await sql`create index audit_events_denied on audit_events (id desc) where not allowed`.execute(db);
}

export async function down(db: Kysely<unknown>): Promise<void> {
  await sql`drop table audit_events, waits, tokens`.execute(db);
}
