import { type Kysely, sql } from "kysely";

/** Exchanges (what follows a send), the outbox of deliveries, connectors, messages received from channels. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table exchanges (
      id bigint generated always as identity primary key,
      exchange_id uuid not null unique,
      kind smallint not null check (kind between 1 and 3),
      requester_session bigint references sessions (id),
      target_session bigint not null references sessions (id),
      requester_side smallint not null check (requester_side in (0, 1)),
      phase smallint not null default 1 check (phase between 1 and 4),
      turn smallint not null default 0,
      max_turns smallint not null check (max_turns between 0 and 5),
      request text not null,
      first_reply text,
      latest_reply text,
      end_reason smallint check (end_reason between 1 and 8),
      announce_outcome smallint not null default 1 check (announce_outcome between 1 and 7),
      route_channel text check (route_channel <> ''),
      route_to text check (route_to <> ''),
      route_account_id text check (route_account_id <> ''),
      route_thread_id text check (route_thread_id <> ''),
      chain_id uuid not null,
      hop int not null check (hop >= 1),
      created_at timestamptz(3) not null,
      closed_at timestamptz(3),
      constraint exchanges_turns check (turn between 0 and max_turns),
      constraint exchanges_closed check ((phase = 4) = (closed_at is not null)),
      constraint exchanges_route_whole check (route_channel is not null or (route_to is null and route_account_id is null and route_thread_id is null))
    )`.execute(db);
  await sql`create index exchanges_requester on exchanges (requester_session, id desc) where requester_session is not null`.execute(
    db,
  );
  await sql`create index exchanges_target on exchanges (target_session, id desc)`.execute(db);
  await sql`create index exchanges_open on exchanges (id) where closed_at is null`.execute(db);
  await sql`create index exchanges_closed_at on exchanges (closed_at) where closed_at is not null`.execute(db);

  await sql`alter table runs add column exchange bigint references exchanges (id) on delete set null`.execute(db);
  await sql`alter table runs add column exchange_step text check (exchange_step <> '')`.execute(db);
  await sql`alter table runs add column injected_context text`.execute(db);
  await sql`create unique index runs_exchange_step on runs (exchange, exchange_step) where exchange is not null`.execute(
    db,
  );

  await sql`
    create table connectors (
      connector_id text primary key check (connector_id <> ''),
      channels text[] not null,
      accounts text not null default '{}',
      abilities text not null default '{}',
      registered_at timestamptz(3) not null,
      last_seen_at timestamptz(3) not null
    ) with (fillfactor = 70)`.execute(db);

  await sql`
    create table deliveries (
      id bigint generated always as identity primary key,
      delivery_id uuid not null unique,
      effect_key text not null unique check (effect_key <> ''),
      exchange bigint references exchanges (id) on delete set null,
      session bigint not null references sessions (id),
      kind smallint not null check (kind between 1 and 2),
      channel text not null check (channel <> ''),
      to_address text,
      account_id text,
      thread_id text,
      lane text not null,
      state smallint not null check (state between 0 and 6),
      attempt int not null default 0,
      failures int not null default 0,
      next_at timestamptz(3) not null,
      lease_token text check (lease_token <> ''),
      lease_expires_at timestamptz(3),
      send_started_at timestamptz(3),
      ended_lease_token text,
      claim_request_id uuid,
      connector_id text,
      text text not null,
      provider_message_id text,
      error_class text,
      error_message text,
      created_at timestamptz(3) not null,
      settled_at timestamptz(3),
      constraint deliveries_settled check ((state >= 3) = (settled_at is not null)),
      constraint deliveries_leased check ((state = 2) = (lease_token is not null)),
      constraint deliveries_lease_expires check ((lease_token is null) = (lease_expires_at is null))
    ) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02)`.execute(db);
  await sql`create index deliveries_ready on deliveries (channel, next_at, id) where state = 1`.execute(db);
  await sql`create index deliveries_ready_account on deliveries (channel, account_id, next_at, id) where state = 1 and account_id is not null`.execute(
    db,
  );
  await sql`create index deliveries_waiting on deliveries (lane, id) where state = 0`.execute(db);
  await sql`create unique index deliveries_one_head on deliveries (lane) where state in (1, 2)`.execute(db);
  await sql`create index deliveries_held on deliveries (connector_id) where lease_token is not null`.execute(db);
  await sql`create index deliveries_session on deliveries (session, id desc)`.execute(db);
  await sql`create index deliveries_exchange on deliveries (exchange) where exchange is not null`.execute(db);
  await sql`create index deliveries_unsuccessful on deliveries (id desc) where state in (4, 5)`.execute(db);
  await sql`create index deliveries_open on deliveries (id desc) where settled_at is null`.execute(db);
  await sql`create index deliveries_settled_at on deliveries (settled_at) where settled_at is not null`.execute(db);

  await sql`
    create table delivery_attempts (
      delivery bigint not null references deliveries (id) on delete cascade,
      attempt int not null,
      connector_id text not null,
      started_at timestamptz(3) not null,
      ended_at timestamptz(3),
      error_class text,
      error_message text,
      primary key (delivery, attempt)
    )`.execute(db);

  await sql`
    create table received_messages (
      channel text not null,
      account_id text not null,
      chat_id text not null,
      provider_message_id text not null,
      result text not null,
      received_at timestamptz(3) not null,
      primary key (channel, account_id, chat_id, provider_message_id)
    )`.execute(db);
  await sql`create index received_messages_at on received_messages (received_at)`.execute(db);
}

export async function down(db: Kysely<unknown>): Promise<void> {
  await sql`drop table received_messages, delivery_attempts, deliveries, connectors`.execute(db);
  await sql`alter table runs drop column exchange, drop column exchange_step, drop column injected_context`.execute(db);
  await sql`drop table exchanges`.execute(db);
}
