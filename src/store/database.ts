import type { Generated, Kysely, Transaction } from "kysely";
import type { AttachmentTable, BlobTable, SpawnTable, ThreadBindingTable, UsageDayTable } from "./spawn-tables.ts";

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
  exchanges: ExchangeTable;
  connectors: ConnectorTable;
  deliveries: DeliveryTable;
  delivery_attempts: DeliveryAttemptTable;
  received_messages: ReceivedMessageTable;
  spawns: SpawnTable;
  blobs: BlobTable;
  attachments: AttachmentTable;
  thread_bindings: ThreadBindingTable;
  usage_days: UsageDayTable;
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
  exchange: bigint | null;
  /** Step of the exchange: "primary", "ping_pong/1", "announce". */
  exchange_step: string | null;
  /** Put before the input in the prompt; null = made from the provenance, or its session was deleted. */
  injected_context: string | null;
  /** Files the agent gave back. */
  output_files: Generated<number>;
  used_provider: string | null;
  used_model: string | null;
  used_context_tokens: bigint | null;
}

export interface RunEventTable {
  run: bigint;
  seq: bigint;
  attempt: number;
  /** 1 state_change, 2 text_delta, 3 tool_call, 4 tool_result, 5 usage, 6 message_added, 7 progress, 8 deltas_pruned, 9 attachment_added. */
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

export interface ExchangeTable {
  id: Generated<bigint>;
  exchange_id: string;
  /** 1 send, 2 message, 3 spawn. */
  kind: number;
  requester_session: bigint | null;
  target_session: bigint;
  /** 1 when the requester takes turns, 0 when nobody does. */
  requester_side: number;
  /** 1 primary, 2 ping_pong, 3 announce, 4 closed. */
  phase: Generated<number>;
  turn: Generated<number>;
  max_turns: number;
  request: string;
  first_reply: string | null;
  latest_reply: string | null;
  /** 1 reply_skip, 2 empty, 3 max_turns, 4 failed, 5 canceled, 6 timed_out, 7 no_loop, 8 requester_gone. */
  end_reason: number | null;
  /** 1 pending, 2 delivered, 3 skipped, 4 denied, 5 no_route, 6 failed, 7 unknown. */
  announce_outcome: Generated<number>;
  route_channel: string | null;
  route_to: string | null;
  route_account_id: string | null;
  route_thread_id: string | null;
  chain_id: string;
  hop: number;
  created_at: Date;
  closed_at: Date | null;
}

export interface ConnectorTable {
  connector_id: string;
  channels: string[];
  /** JSON: channel → account ids; none = any. */
  accounts: Generated<string>;
  /** JSON: channel → abilities. */
  abilities: Generated<string>;
  registered_at: Date;
  last_seen_at: Date;
}

export interface DeliveryTable {
  id: Generated<bigint>;
  delivery_id: string;
  /** `<exchange uuid>/<step>`, `<delivery's binding>/bind`, `…/unbind`: what is delivered once. */
  effect_key: string;
  exchange: bigint | null;
  session: bigint;
  /** 1 announce, 2 reply, 3 bind_thread, 4 unbind_thread. */
  kind: number;
  channel: string;
  to_address: string | null;
  account_id: string | null;
  thread_id: string | null;
  /** One chat: channel, account, address and thread. */
  lane: string;
  /** 0 waiting, 1 ready, 2 claimed, 3 delivered, 4 dead, 5 unknown, 6 denied. */
  state: number;
  attempt: Generated<number>;
  /** Failed attempts that count against the limit; 0 again after a redrive. */
  failures: Generated<number>;
  next_at: Date;
  lease_token: string | null;
  lease_expires_at: Date | null;
  send_started_at: Date | null;
  ended_lease_token: string | null;
  claim_request_id: string | null;
  connector_id: string | null;
  text: string;
  provider_message_id: string | null;
  error_class: string | null;
  error_message: string | null;
  created_at: Date;
  settled_at: Date | null;
  /** Of kinds 3 and 4. */
  thread_binding: bigint | null;
}

export interface DeliveryAttemptTable {
  delivery: bigint;
  attempt: number;
  connector_id: string;
  started_at: Date;
  ended_at: Date | null;
  error_class: string | null;
  error_message: string | null;
}

export interface ReceivedMessageTable {
  channel: string;
  account_id: string;
  chat_id: string;
  provider_message_id: string;
  /** JSON of what ReceiveMessage answered. */
  result: string;
  received_at: Date;
}
