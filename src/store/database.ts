import type { Generated, Kysely, Transaction } from "kysely";

/** Any connection. Reads may use it. */
export type Db = Kysely<Tables>;
/** An open transaction. Whatever must be atomic takes this. */
export type Tx = Transaction<Tables>;

/**
 * The tables as migrations/ makes them. bigint columns arrive as bigint, bytea as Buffer, timestamptz(3) as Date
 * (milliseconds on both sides, so that a Date pages without losing rows).
 */
export interface Tables {
  secrets: SecretTable;
  sessions: SessionTable;
  messages: MessageTable;
  runs: RunTable;
  run_events: RunEventTable;
  requests: RequestTable;
  hosts: HostTable;
  session_imports: SessionImportTable;
  tokens: TokenTable;
  waits: WaitTable;
  audit_events: AuditEventTable;
}

export interface SecretTable {
  name: string;
  value: Buffer;
}

export interface SessionTable {
  id: Generated<bigint>;
  session_id: string;
  session_key: string;
  agent_id: string;
  /** 1 main, 2 group, 3 cron, 4 hook, 5 node, 6 other. */
  kind: number;
  /** 1 direct, 2 group, 3 channel, 4 unknown. */
  chat_type: number;
  /** 1 active, 2 archived, 3 superseded, 4 deleted. */
  state: Generated<number>;
  reserved: Generated<boolean>;
  channel: string | null;
  label: string | null;
  display_name: string | null;
  subject: string | null;
  model: string | null;
  model_provider: string | null;
  model_override: string | null;
  thinking_level: string | null;
  verbose_level: string | null;
  context_tokens: bigint | null;
  input_tokens: bigint | null;
  output_tokens: bigint | null;
  total_tokens: bigint | null;
  system_sent: boolean | null;
  aborted_last_run: boolean | null;
  /** 1 allow, 2 deny. */
  send_policy: number | null;
  last_channel: string | null;
  last_to: string | null;
  route_channel: string | null;
  route_to: string | null;
  route_account_id: string | null;
  route_thread_id: string | null;
  address_id: bigint;
  parent_id: bigint | null;
  root_id: bigint;
  path: bigint[];
  last_seq: Generated<bigint>;
  version: Generated<bigint>;
  created_at: Date;
  updated_at: Date;
  archived_at: Date | null;
}

export interface MessageTable {
  session: bigint;
  seq: bigint;
  message_id: string;
  /** 1 user, 2 assistant, 3 tool_result, 4 system. */
  role: number;
  internal: Generated<boolean>;
  run: bigint | null;
  created_at: Date;
  /** UTF-8 JSON of domain MessageBody. */
  body: Buffer;
  raw: Buffer | null;
}

export interface RunTable {
  id: Generated<bigint>;
  run_id: string;
  session: bigint;
  agent_id: string;
  /** 0 waiting, 1 ready, 2 running, 3 completed, 4 failed, 5 canceled, 6 timed_out. */
  state: number;
  ready_at: Date;
  attempt: Generated<number>;
  lost_leases: Generated<number>;
  lease_token: string | null;
  lease_expires_at: Date | null;
  /** Set from claim to first beat. */
  start_deadline_at: Date | null;
  /** The lease that ended the last attempt: a repeat of the call that ended it is answered, not refused. */
  ended_lease_token: string | null;
  host_id: string | null;
  host_instance_id: string | null;
  claim_request_id: string | null;
  run_token_hash: Buffer | null;
  input_message_id: string | null;
  run_timeout_ms: Generated<bigint>;
  deadline_at: Date | null;
  model: string | null;
  thinking_level: string | null;
  cancel_requested_at: Date | null;
  cancel_reason: string | null;
  created_at: Date;
  claimed_at: Date | null;
  started_at: Date | null;
  ended_at: Date | null;
  last_event_seq: Generated<bigint>;
  last_client_seq: Generated<bigint>;
  /** Whether the text deltas of the ended run were folded away. */
  deltas_pruned: Generated<boolean>;
  error_code: string | null;
  error_message: string | null;
  error_retryable: boolean | null;
  reply: string | null;
  reply_message_id: string | null;
  stop_reason: string | null;
  input_tokens: bigint | null;
  output_tokens: bigint | null;
  cache_read_tokens: bigint | null;
  cache_write_tokens: bigint | null;
  total_tokens: bigint | null;
  cost_usd: number | null;
  /** JSON of domain Provenance. */
  provenance: string;
  source_session_id: string | null;
  traceparent: string | null;
}

export interface RunEventTable {
  run: bigint;
  seq: bigint;
  attempt: number;
  /** 1 state_change, 2 text_delta, 3 tool_call, 4 tool_result, 5 usage, 6 message_added, 7 progress, 8 deltas_pruned. */
  type: number;
  created_at: Date;
  /** UTF-8 JSON of domain RunEventBody. */
  body: Buffer;
}

export interface RequestTable {
  caller: string;
  method: string;
  request_id: string;
  payload_hash: Buffer;
  /** JSON written by the verb that remembers it. */
  result: string;
  created_at: Date;
}

export interface HostTable {
  host_id: string;
  instance_id: string;
  agent_ids: string[];
  client: Generated<string>;
  registered_at: Date;
  last_seen_at: Date;
  drained_at: Date | null;
}

/** How a session stood when an import last wrote it; see session-import.ts. */
export interface SessionImportTable {
  session: bigint;
  version: bigint;
  last_seq: bigint;
  source_hash: Buffer;
  imported_at: Date;
}

export interface TokenTable {
  id: Generated<bigint>;
  token_id: string;
  name: string;
  /** 1 operator, 2 host, 3 connector. */
  role: number;
  agents: string[];
  channels: string[];
  accounts: string[];
  /** SHA-256 of the token. */
  token_hash: Buffer;
  created_at: Date;
  expires_at: Date | null;
  revoked_at: Date | null;
  last_used_at: Date | null;
}

/** A session that waits for a run of another one, while the wait lasts; renewed by the waiter, expired when it died. */
export interface WaitTable {
  wait_id: string;
  waiter_session: bigint;
  target_session: bigint;
  /** The run waited for; of a send that is about to be stored, not there yet. */
  target_run: string;
  expires_at: Date;
}

export interface AuditEventTable {
  id: Generated<bigint>;
  created_at: Date;
  principal: string;
  acting_as: string | null;
  rpc: string;
  session_key: string | null;
  session_id: string | null;
  run_id: string | null;
  allowed: boolean;
  reason: string | null;
  request_id: string | null;
}
