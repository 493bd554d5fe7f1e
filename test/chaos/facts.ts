import pg from "pg";
import type { Message, Run } from "../../src/client/index.ts";
import type { Callers } from "./callers.ts";
import type { Chat } from "./chat.ts";
import type { LateHost } from "./late-host.ts";
import type { Random } from "./random.ts";
import { askAnyone, type Replica } from "./replicas.ts";

/** What is in the database at the end, what the service says is, and what callers lived through. */
export interface Facts {
  readonly callers: Pick<Callers, "sent" | "watched" | "faults">;
  readonly lateHost: Pick<LateHost, "refused" | "faults">;
  readonly chat: Pick<Chat, "asked" | "posted" | "lost" | "faults">;
  readonly sessions: readonly SessionFact[];
  readonly runs: readonly RunFact[];
  readonly messages: readonly MessageFact[];
  /** By run, in the order of sequences. */
  readonly events: ReadonlyMap<string, readonly EventFact[]>;
  readonly requests: readonly RequestFact[];
  readonly exchanges: readonly ExchangeFact[];
  readonly spawns: readonly SpawnFact[];
  readonly files: readonly FileFact[];
  readonly deliveries: readonly DeliveryFact[];
  /** As each replica shows them. */
  readonly shown: readonly { readonly runs: readonly Run[]; readonly messages: readonly Message[] }[];
}

export interface SessionFact {
  readonly id: string;
  readonly sessionId: string;
  readonly key: string;
  readonly lastSeq: number;
}

export interface RunFact {
  readonly id: number;
  readonly runId: string;
  readonly session: string;
  readonly state: "waiting" | "ready" | "running" | "completed" | "failed" | "canceled" | "timed_out";
  readonly attempt: number;
  readonly leased: boolean;
  readonly reply: string | null;
  readonly replyMessageId: string | null;
  readonly inputMessageId: string;
  readonly lastEventSeq: number;
  readonly sourceSession: string | null;
  readonly sourceTool: string | null;
  /** Step of an exchange; null for a run without one. */
  readonly step: string | null;
}

export interface MessageFact {
  readonly session: string;
  readonly seq: number;
  readonly messageId: string;
  readonly role: "user" | "assistant" | "tool_result" | "system";
  /** 0 for one that no run belongs to. */
  readonly run: number;
  readonly text: string;
}

export interface EventFact {
  readonly seq: number;
  readonly attempt: number;
  /** Of the transaction that wrote it. A later one that had to see it has a higher number: an order without clocks. */
  readonly transaction: number;
  readonly body: { readonly type: string; readonly state?: string; readonly text?: string; readonly note?: string };
}

export interface ExchangeFact {
  readonly exchangeId: string;
  readonly kind: "send" | "message" | "spawn";
  readonly closed: boolean;
  readonly endReason: string | null;
  /** Steps of its runs, in their order. */
  readonly steps: readonly string[];
}

export interface SpawnFact {
  /** Session of the child. */
  readonly child: string;
  readonly requester: string;
  readonly requesterRunId: string | null;
  readonly firstRunId: string;
  readonly exchangeId: string | null;
  readonly active: boolean;
  readonly settled: boolean;
}

export interface FileFact {
  readonly session: string;
  readonly name: string;
  readonly sha256: string;
  /** Whether its content is there and has this hash. */
  readonly intact: boolean;
}

export interface DeliveryFact {
  readonly deliveryId: string;
  readonly session: string;
  readonly exchangeId: string;
  readonly kind: "announce" | "reply";
  readonly state: "waiting" | "ready" | "claimed" | "delivered" | "dead" | "unknown" | "denied";
  readonly text: string;
}

export interface RequestFact {
  readonly caller: string;
  readonly method: string;
  readonly requestId: string;
  readonly runId: string;
}

type Rows = readonly Record<string, string>[];

/** Reads everything from the tables themselves, past the service. */
export async function readTables(databaseUrl: string): Promise<Omit<Facts, "callers" | "lateHost" | "chat" | "shown">> {
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  try {
    const read = async (statement: string): Promise<Rows> => (await client.query(statement)).rows;
    return {
      sessions: (await read("select id, session_id, session_key, last_seq from sessions order by id")).map((row) => ({
        id: row["id"]!,
        sessionId: row["session_id"]!,
        key: row["session_key"]!,
        lastSeq: Number(row["last_seq"]),
      })),
      runs: (
        await read(
          `select id, run_id, session, (array['waiting','ready','running','completed','failed','canceled','timed_out'])[state + 1] as state, attempt,
             lease_token, reply, reply_message_id, input_message_id, last_event_seq, source_session_id, exchange_step,
             provenance::jsonb ->> 'sourceTool' as source_tool from runs order by id`,
        )
      ).map(toRunFact),
      messages: (
        await read(
          `select session, seq, message_id, (array['user','assistant','tool_result','system'])[role] as role, run,
             convert_from(body, 'UTF8') as body from messages order by session, seq`,
        )
      ).map(toMessageFact),
      events: toEvents(
        await read(
          "select run, seq, attempt, xmin::text::bigint as transaction, convert_from(body, 'UTF8') as body from run_events order by run, seq",
        ),
      ),
      exchanges: (
        await read(
          `select exchange_id, (array['send','message','spawn'])[kind] as kind, closed_at, (array['reply_skip','empty','max_turns','failed','canceled','timed_out','no_loop','requester_gone'])[end_reason] as reason,
             (select string_agg(exchange_step, ' ' order by id) from runs where exchange = exchanges.id) as steps from exchanges order by id`,
        )
      ).map((row) => ({
        exchangeId: row["exchange_id"]!,
        kind: row["kind"] as ExchangeFact["kind"],
        closed: row["closed_at"] !== null,
        endReason: row["reason"] ?? null,
        steps: row["steps"]?.split(" ") ?? [],
      })),
      spawns: (
        await read(
          `select child, requester, requester_run, first_run, run_ended_at, settled_at,
             (select exchange_id from exchanges where id = spawns.exchange) from spawns order by child`,
        )
      ).map((row) => ({
        child: row["child"]!,
        requester: row["requester"]!,
        requesterRunId: row["requester_run"] ?? null,
        firstRunId: row["first_run"]!,
        exchangeId: row["exchange_id"] ?? null,
        active: row["run_ended_at"] === null,
        settled: row["settled_at"] !== null,
      })),
      files: (
        await read(
          `select session, name, encode(a.sha256, 'hex') as sha256, coalesce(sha256(b.data) = a.sha256, false)::text as intact
             from attachments a left join blobs b using (sha256) order by a.id`,
        )
      ).map((row) => ({
        session: row["session"]!,
        name: row["name"]!,
        sha256: row["sha256"]!,
        intact: row["intact"] === "true",
      })),
      deliveries: (
        await read(
          `select delivery_id, session, (array['announce','reply'])[kind] as kind, text,
             (array['waiting','ready','claimed','delivered','dead','unknown','denied'])[state + 1] as state,
             (select exchange_id from exchanges where id = exchange) from deliveries order by id`,
        )
      ).map((row) => ({
        deliveryId: row["delivery_id"]!,
        session: row["session"]!,
        exchangeId: row["exchange_id"] ?? "",
        kind: row["kind"] as DeliveryFact["kind"],
        state: row["state"] as DeliveryFact["state"],
        text: row["text"]!,
      })),
      requests: (
        await read(
          `select caller, method, request_id::text, result from requests where method in ('SendMessage', 'SpawnSession')
             union all select channel, 'ReceiveMessage', provider_message_id, result from received_messages`,
        )
      ).map((row) => ({
        caller: row["caller"]!,
        method: row["method"]!,
        requestId: row["request_id"]!,
        runId: (JSON.parse(row["result"]!) as { runId: string }).runId,
      })),
    };
  } finally {
    await client.end();
  }
}

/** How many runs and deliveries have not ended. */
export async function countOpen(databaseUrl: string): Promise<number> {
  const client = new pg.Client({ connectionString: databaseUrl });
  client.on("error", () => undefined);
  await client.connect();
  try {
    const { rows } = await client.query(
      `select (select count(*) from runs where ended_at is null)
         + (select count(*) from deliveries where settled_at is null) as open`,
    );
    return Number(rows[0].open);
  } finally {
    await client.end();
  }
}

/** Reads every run and every transcript through one replica. */
export async function readThrough(replica: Replica, sessions: readonly string[], random: Random) {
  return askAnyone([replica], random, async ({ patient }) => {
    const runs: Run[] = [];
    for await (const run of patient.eachRun({ pageSize: 200 })) runs.push(run);
    const messages: Message[] = [];
    for (const session of sessions) {
      for await (const message of patient.eachMessage({ session, includeInternal: true })) messages.push(message);
    }
    return { runs, messages };
  });
}

function toRunFact(row: Rows[number]): RunFact {
  return {
    id: Number(row["id"]),
    runId: row["run_id"]!,
    session: row["session"]!,
    state: row["state"] as RunFact["state"],
    attempt: Number(row["attempt"]),
    leased: row["lease_token"] !== null,
    reply: row["reply"] ?? null,
    replyMessageId: row["reply_message_id"] ?? null,
    inputMessageId: row["input_message_id"]!,
    lastEventSeq: Number(row["last_event_seq"]),
    sourceSession: row["source_session_id"] ?? null,
    sourceTool: row["source_tool"] ?? null,
    step: row["exchange_step"] ?? null,
  };
}

function toMessageFact(row: Rows[number]): MessageFact {
  const { parts } = JSON.parse(row["body"]!) as { parts: { text?: string }[] };
  return {
    session: row["session"]!,
    seq: Number(row["seq"]),
    messageId: row["message_id"]!,
    role: row["role"] as MessageFact["role"],
    run: Number(row["run"]),
    text: parts.map(({ text = "" }) => text).join(""),
  };
}

function toEvents(rows: Rows): Map<string, EventFact[]> {
  const events = new Map<string, EventFact[]>();
  for (const row of rows) {
    const ofRun = events.get(row["run"]!) ?? [];
    events.set(row["run"]!, ofRun);
    ofRun.push({
      seq: Number(row["seq"]),
      attempt: Number(row["attempt"]),
      transaction: Number(row["transaction"]),
      body: JSON.parse(row["body"]!),
    });
  }
  return events;
}
