import pg from "pg";
import type { Message, Run } from "../../src/client/index.ts";
import type { Callers } from "./callers.ts";
import type { LateHost } from "./late-host.ts";
import type { Random } from "./random.ts";
import { askAnyone, type Replica } from "./replicas.ts";

/** What is in the database at the end, what the service says is, and what callers lived through. */
export interface Facts {
  readonly callers: Pick<Callers, "sent" | "watched" | "faults">;
  readonly lateHost: Pick<LateHost, "refused" | "faults">;
  readonly sessions: readonly SessionFact[];
  readonly runs: readonly RunFact[];
  readonly messages: readonly MessageFact[];
  /** By run, in the order of sequences. */
  readonly events: ReadonlyMap<string, readonly EventFact[]>;
  readonly requests: readonly RequestFact[];
  readonly exchanges: readonly ExchangeFact[];
  /** As each replica shows them. */
  readonly shown: readonly { readonly runs: readonly Run[]; readonly messages: readonly Message[] }[];
}

export interface SessionFact {
  readonly id: string;
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
  /** Step of an exchange; null for a run without one. */
  readonly step: string | null;
}

export interface MessageFact {
  readonly session: string;
  readonly seq: number;
  readonly messageId: string;
  readonly role: "user" | "assistant" | "tool_result" | "system";
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
  readonly closed: boolean;
  readonly endReason: string | null;
  /** Steps of its runs, in their order. */
  readonly steps: readonly string[];
}

export interface RequestFact {
  readonly caller: string;
  readonly requestId: string;
  readonly runId: string;
}

type Rows = readonly Record<string, string>[];

/** Reads everything from the tables themselves, past the service. */
export async function readTables(
  databaseUrl: string,
): Promise<Pick<Facts, "sessions" | "runs" | "messages" | "events" | "requests" | "exchanges">> {
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  try {
    const read = async (statement: string): Promise<Rows> => (await client.query(statement)).rows;
    return {
      sessions: (await read("select id, session_key, last_seq from sessions order by id")).map((row) => ({
        id: row["id"]!,
        key: row["session_key"]!,
        lastSeq: Number(row["last_seq"]),
      })),
      runs: (
        await read(
          `select id, run_id, session, (array['waiting','ready','running','completed','failed','canceled','timed_out'])[state + 1] as state, attempt,
             lease_token, reply, reply_message_id, input_message_id, last_event_seq, source_session_id, exchange_step from runs order by id`,
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
          `select exchange_id, closed_at, (array['reply_skip','empty','max_turns','failed','canceled','timed_out','no_loop','requester_gone'])[end_reason] as reason,
             (select string_agg(exchange_step, ' ' order by id) from runs where exchange = exchanges.id) as steps from exchanges order by id`,
        )
      ).map((row) => ({
        exchangeId: row["exchange_id"]!,
        closed: row["closed_at"] !== null,
        endReason: row["reason"] ?? null,
        steps: row["steps"]?.split(" ") ?? [],
      })),
      requests: (await read("select caller, request_id, result from requests where method = 'SendMessage'")).map(
        (row) => ({
          caller: row["caller"]!,
          requestId: row["request_id"]!,
          runId: (JSON.parse(row["result"]!) as { runId: string }).runId,
        }),
      ),
    };
  } finally {
    await client.end();
  }
}

/** How many runs have not ended. */
export async function countOpenRuns(databaseUrl: string): Promise<number> {
  const client = new pg.Client({ connectionString: databaseUrl });
  client.on("error", () => undefined);
  await client.connect();
  try {
    const { rows } = await client.query("select count(*) as open from runs where ended_at is null");
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
