import type { Generated } from "kysely";

/*
 * The tables of spawned sessions, their files and threads, and of usage; see database.ts.
 */

/** How a session was spawned. One row for each child, for as long as its row. */
export interface SpawnTable {
  child: bigint;
  exchange: bigint | null;
  /** UUID of the run whose result is announced. */
  first_run: string;
  requester: bigint;
  /** Counts towards the limit of children of every incarnation of the requester. */
  requester_address: bigint;
  /** UUID of the run that spawned it; null for an operator that acts as the requester. */
  requester_run: string | null;
  /** 1 run, 2 session. */
  mode: number;
  /** 1 keep, 2 delete. */
  cleanup: number;
  /** Names the directory of its files below the workspace. */
  attachments_dir: string | null;
  mount_path: string | null;
  created_at: Date;
  /** Set: the child no longer counts as active. */
  run_ended_at: Date | null;
  /** The announce was delivered, silent, denied, without a route or given up. */
  settled_at: Date | null;
  /** Archived or deleted after that. */
  swept_at: Date | null;
}

/** Content of files, once for each hash. Removed when nothing has pointed at it for a while; see blobs.ts. */
export interface BlobTable {
  sha256: Buffer;
  size: bigint;
  data: Buffer;
  created_at: Date;
  /** When it was last given, or lost a file that pointed at it; null once the pruner has seen one that does. */
  loose_at: Date | null;
}

export interface AttachmentTable {
  id: Generated<bigint>;
  attachment_id: string;
  /** Decides who may see it and how long it is kept. */
  session: bigint;
  /** The run that gave it back; null for input, and once the run was pruned. */
  run: bigint | null;
  /** 1 input of the session, 2 output of a run. */
  direction: number;
  position: number;
  /** Attempt of the run that gave it back; 0 for input. */
  attempt: Generated<number>;
  name: string;
  /** Name in NFC, case folded: unique within its session or run. */
  name_key: string;
  mime_type: string | null;
  size: bigint;
  sha256: Buffer;
  created_at: Date;
}

export interface ThreadBindingTable {
  id: Generated<bigint>;
  child: bigint;
  requester: bigint;
  /** 1 requested, 2 bound, 3 failed, 4 unbound. */
  state: Generated<number>;
  channel: string;
  account_id: string | null;
  chat_id: string;
  /** Null until bound. */
  thread_id: string | null;
  requested_at: Date;
  bound_at: Date | null;
  /** When a message last came in or went out through it. */
  active_at: Date | null;
  ended_at: Date | null;
  detail: string | null;
}

/** Usage of the ended runs of a session on a UTC day. Refers to nothing: it outlives runs, sessions and resets. */
export interface UsageDayTable {
  session: bigint;
  /** "2026-11-30". */
  day: string;
  session_id: string;
  session_key: string;
  agent_id: string;
  address_id: bigint;
  root_id: bigint;
  path: bigint[];
  runs: bigint;
  reported_runs: bigint;
  run_ms: bigint;
  input_tokens: bigint | null;
  output_tokens: bigint | null;
  cache_read_tokens: bigint | null;
  cache_write_tokens: bigint | null;
  total_tokens: bigint | null;
  cost_usd: number | null;
}
