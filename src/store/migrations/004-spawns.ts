import { type Kysely, sql } from "kysely";

/** Spawned sessions, their files and threads, usage by day. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table spawns (
      child bigint primary key references sessions (id) on delete cascade,
      exchange bigint references exchanges (id) on delete set null,
      first_run uuid not null,
      requester bigint not null references sessions (id),
      requester_address bigint not null,
      requester_run uuid,
      mode smallint not null check (mode between 1 and 2),
      cleanup smallint not null check (cleanup between 1 and 2),
      attachments_dir uuid,
      mount_path text check (mount_path <> ''),
      created_at timestamptz(3) not null,
      run_ended_at timestamptz(3),
      settled_at timestamptz(3),
      swept_at timestamptz(3),
      constraint spawns_session_is_kept check (mode = 1 or cleanup = 1),
      constraint spawns_settled_after_end check (settled_at is null or run_ended_at is not null),
      constraint spawns_swept_after_settled check (swept_at is null or settled_at is not null)
    ) with (fillfactor = 80)`.execute(db);
  await sql`create unique index spawns_exchange on spawns (exchange) where exchange is not null`.execute(db);
  await sql`create index spawns_active on spawns (requester_address) where run_ended_at is null`.execute(db);
  await sql`create index spawns_active_all on spawns (child) where run_ended_at is null`.execute(db);
  await sql`create index spawns_requester_run on spawns (requester_run) where requester_run is not null`.execute(db);
  await sql`create index spawns_due on spawns (cleanup, settled_at) where settled_at is not null and swept_at is null`.execute(
    db,
  );

  await sql`
    create table blobs (
      sha256 bytea primary key check (octet_length(sha256) = 32),
      size bigint not null check (size >= 0),
      data bytea not null,
      created_at timestamptz(3) not null,
      loose_at timestamptz(3),
      constraint blobs_size check (size = octet_length(data))
    )`.execute(db);
  await sql`alter table blobs alter column data set storage external`.execute(db);
  await sql`create index blobs_loose on blobs (loose_at) where loose_at is not null`.execute(db);

  await sql`
    create table attachments (
      id bigint generated always as identity primary key,
      attachment_id uuid not null unique,
      session bigint not null references sessions (id) on delete cascade,
      run bigint references runs (id) on delete set null,
      direction smallint not null check (direction between 1 and 2),
      position int not null check (position >= 0),
      attempt int not null default 0,
      name text not null check (name <> '' and octet_length(name) <= 1024),
      name_key text not null,
      mime_type text check (mime_type <> ''),
      size bigint not null check (size >= 0),
      sha256 bytea not null references blobs (sha256),
      created_at timestamptz(3) not null
    )`.execute(db);
  await sql`create unique index attachments_input_name on attachments (session, name_key) where direction = 1`.execute(
    db,
  );
  await sql`create unique index attachments_output_name on attachments (run, name_key) where run is not null`.execute(
    db,
  );
  await sql`create index attachments_session on attachments (session, direction, position)`.execute(db);
  await sql`create index attachments_blob on attachments (sha256)`.execute(db);

  await sql`
    create table thread_bindings (
      id bigint generated always as identity primary key,
      child bigint not null unique references sessions (id) on delete cascade,
      requester bigint not null references sessions (id),
      state smallint not null default 1 check (state between 1 and 4),
      channel text not null check (channel <> ''),
      account_id text check (account_id <> ''),
      chat_id text not null check (chat_id <> ''),
      thread_id text check (thread_id <> ''),
      requested_at timestamptz(3) not null,
      bound_at timestamptz(3),
      active_at timestamptz(3),
      ended_at timestamptz(3),
      detail text check (detail <> ''),
      constraint thread_bindings_bound check (state <> 2 or (thread_id is not null and bound_at is not null and active_at is not null)),
      constraint thread_bindings_ended check ((state >= 3) = (ended_at is not null))
    )`.execute(db);
  await sql`create unique index thread_bindings_thread on thread_bindings (channel, (coalesce(account_id, '')), chat_id, thread_id) where state = 2`.execute(
    db,
  );
  await sql`create index thread_bindings_open on thread_bindings ((coalesce(active_at, requested_at))) where state in (1, 2)`.execute(
    db,
  );

  await sql`alter table deliveries drop constraint deliveries_kind_check, add constraint deliveries_kind_check check (kind between 1 and 4)`.execute(
    db,
  );
  await sql`alter table deliveries add column thread_binding bigint references thread_bindings (id) on delete set null`.execute(
    db,
  );
  await sql`create index deliveries_thread_binding on deliveries (thread_binding) where thread_binding is not null`.execute(
    db,
  );

  await sql`
    create table usage_days (
      session bigint not null,
      day date not null,
      session_id uuid not null,
      session_key text not null,
      agent_id text not null,
      address_id bigint not null,
      root_id bigint not null,
      path bigint[] not null,
      runs bigint not null,
      reported_runs bigint not null,
      run_ms bigint not null,
      input_tokens bigint,
      output_tokens bigint,
      cache_read_tokens bigint,
      cache_write_tokens bigint,
      total_tokens bigint,
      cost_usd double precision,
      primary key (session, day)
    ) with (fillfactor = 80)`.execute(db);
  await sql`create index usage_days_day on usage_days (day desc, agent_id, session_key, session)`.execute(db);
  await sql`create index usage_days_root on usage_days (root_id, day desc)`.execute(db);
  await sql`create index usage_days_agent on usage_days (agent_id, day desc)`.execute(db);

  await sql`alter table runs add column output_files int not null default 0 check (output_files >= 0)`.execute(db);
  await sql`alter table runs add column used_provider text`.execute(db);
  await sql`alter table runs add column used_model text`.execute(db);
  await sql`alter table runs add column used_context_tokens bigint`.execute(db);
  await sql`drop index runs_retry_deadline`.execute(db);
  await sql`create index runs_queued_deadline on runs (deadline_at) where state in (0, 1) and deadline_at is not null`.execute(
    db,
  );
  await sql`create index runs_queued_canceled on runs (id) where state in (0, 1) and cancel_requested_at is not null`.execute(
    db,
  );
  await sql`alter table run_events drop constraint run_events_type_check, add constraint run_events_type_check check (type between 1 and 9)`.execute(
    db,
  );
}

export async function down(db: Kysely<unknown>): Promise<void> {
  await sql`delete from run_events where type = 9`.execute(db);
  await sql`alter table run_events drop constraint run_events_type_check, add constraint run_events_type_check check (type between 1 and 8)`.execute(
    db,
  );
  await sql`drop index runs_queued_canceled, runs_queued_deadline`.execute(db);
  await sql`create index runs_retry_deadline on runs (deadline_at) where state = 1 and deadline_at is not null`.execute(
    db,
  );
  await sql`alter table runs drop column output_files, drop column used_provider, drop column used_model, drop column used_context_tokens`.execute(
    db,
  );
  await sql`delete from deliveries where kind > 2`.execute(db);
  await sql`alter table deliveries drop column thread_binding, drop constraint deliveries_kind_check, add constraint deliveries_kind_check check (kind between 1 and 2)`.execute(
    db,
  );
  await sql`drop table usage_days, thread_bindings, attachments, blobs, spawns`.execute(db);
}
