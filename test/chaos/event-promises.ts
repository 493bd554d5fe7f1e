import type { EventFact, RunFact } from "./facts.ts";
import type { Indexed } from "./promises.ts";

/** What is promised of the events of runs, and of those who watch them. */
export const eventPromises = {
  "events of a run are 1..N without gap, with one terminal change, the last": denseEvents,
  "a run's states follow one another, and hosts write only while they hold it": legalEvents,
  "what an attempt streamed is its answer, whole": streamedWhole,
  "what a host wrote after its lease was taken is nowhere": lateWritesRefused,
  "runs of a session were in execution one after the other, in their order": oneAtATime,
  "every watcher saw every event once, in order, across all its cuts": watchersSawAll,
} as const;

const terminal = new Set(["completed", "failed", "canceled", "timed_out"]);

function eventsOf({ events }: Indexed, run: RunFact): readonly EventFact[] {
  return events.get(String(run.id)) ?? [];
}

function* denseEvents(facts: Indexed): Generator<string> {
  for (const run of facts.runs) {
    const events = eventsOf(facts, run);
    const dense = events.length === run.lastEventSeq && events.every(({ seq }, place) => seq === place + 1);
    if (!dense) yield `run ${run.runId}: ${events.length} events, the last numbered ${run.lastEventSeq}`;
    const ends = events.filter(({ body }) => body.type === "state_change" && terminal.has(body.state ?? ""));
    if (ends.length !== 1) yield `run ${run.runId}: ${ends.length} terminal changes`;
    else if (ends[0] !== events.at(-1)) yield `run ${run.runId}: events after its end`;
    else if (ends[0]!.body.state !== run.state)
      yield `run ${run.runId} is ${run.state}, said was ${ends[0]!.body.state}`;
  }
}

const following: Readonly<Record<string, readonly string[]>> = {
  "": ["waiting", "ready"],
  waiting: ["running", "canceled"],
  ready: ["running", "canceled", "failed"],
  running: ["ready", "completed", "failed", "canceled", "timed_out"],
};

function* legalEvents(facts: Indexed): Generator<string> {
  for (const run of facts.runs) {
    let state = "";
    let attempt = 0;
    for (const { seq, body, attempt: own } of eventsOf(facts, run)) {
      const where = `run ${run.runId}, event ${seq}`;
      if (body.type === "state_change") {
        if (!following[state]?.includes(body.state ?? "")) yield `${where}: from ${state} to ${body.state}`;
        state = body.state ?? "";
        attempt = own;
      } else if (state !== "running") yield `${where}: ${body.type} while ${state}`;
      if (own !== attempt) yield `${where}: of attempt ${own}, within attempt ${attempt}`;
    }
  }
}

function* streamedWhole(facts: Indexed): Generator<string> {
  for (const run of facts.runs) {
    if (run.state !== "completed") continue;
    const events = eventsOf(facts, run);
    const claimedAt = events.findLastIndex(({ body }) => body.state === "running");
    const text = events
      .slice(claimedAt)
      .map(({ body }) => (body.type === "text_delta" ? (body.text ?? "") : ""))
      .join("");
    if (text !== "" && text !== run.reply) yield `run ${run.runId} streamed "${text}" and replied "${run.reply}"`;
  }
}

function* lateWritesRefused({ lateHost, events }: Indexed): Generator<string> {
  const refused = new Set(lateHost.refused);
  for (const [run, ofRun] of events) {
    for (const { body } of ofRun) if (refused.has(body.note ?? "")) yield `run ${run} has the refused ${body.note}`;
  }
}

/** By the numbers of the transactions: a run is claimed by one that saw the end of the run before it. */
function* oneAtATime(facts: Indexed): Generator<string> {
  for (const [session, lane] of Map.groupBy(facts.runs, (run) => run.session)) {
    let endOfLast = 0;
    for (const run of lane) {
      const events = eventsOf(facts, run);
      const begin = events.find(({ body }) => body.state === "running")?.transaction;
      const end = events.at(-1)?.transaction;
      if (begin === undefined || end === undefined) continue;
      if (begin <= endOfLast) yield `session ${session}: run ${run.runId} began before the one ahead of it had ended`;
      endOfLast = end;
    }
  }
}

function* watchersSawAll({ callers, runByRunId }: Indexed): Generator<string> {
  for (const { runId, sequences, ended } of callers.watched) {
    const all = runByRunId.get(runId)?.lastEventSeq;
    if (!ended) yield `a watcher of run ${runId} never saw its end`;
    else if (sequences.length !== all || sequences.some((sequence, place) => sequence !== BigInt(place + 1))) {
      yield `a watcher of run ${runId}, which has ${all} events, saw ${sequences.join(" ")}`;
    }
  }
}
