import { RunState } from "../../src/client/index.ts";
import { chatPromises } from "./chat-promises.ts";
import { eventPromises } from "./event-promises.ts";
import type { ExchangeFact, Facts, MessageFact, RunFact } from "./facts.ts";
import { isWoken, spawnPromises } from "./spawn-promises.ts";
import { answerOf, endingOf, relayed, relayRequestId, toWork } from "./work.ts";

/** Something the service promises, and every way in which it was not kept. */
export interface Promised {
  readonly promise: string;
  readonly broken: readonly string[];
}

type Check = (facts: Indexed) => Iterable<string>;

/** Facts, and where to find one by another. */
export interface Indexed extends Facts {
  readonly runById: ReadonlyMap<number, RunFact>;
  readonly runByRunId: ReadonlyMap<string, RunFact>;
  readonly messageById: ReadonlyMap<string, MessageFact>;
  readonly inputOf: (run: RunFact) => string;
}

const checks: Readonly<Record<string, Check>> = {
  "every accepted request id has exactly one run, and every run one request": oneRunPerRequest,
  "a repeated request id answers the same run": sameRunForRepeats,
  "every run has exactly one user message, the one that was sent": oneUserMessagePerRun,
  "transcripts are gap-free, and in the order in which messages were accepted": transcriptsInOrder,
  "every run has ended as its message asks": endedAsAsked,
  "no session has a waiting run without a head, and no lease is left": nothingStuck,
  "a completed run has one final message, and its reply is the agent's answer": oneFinalMessage,
  "a relayed message was sent once, however often its run was started": relayedOnce,
  "every exchange between sessions has ended, each of its steps taken once": exchangesEnded,
  "both replicas show what is stored": shownAsStored,
  "nobody was answered what must not be answered": ({ callers, lateHost, chat }) => [
    ...callers.faults,
    ...lateHost.faults,
    ...chat.faults,
  ],
  ...spawnPromises,
  ...chatPromises,
  ...eventPromises,
};

export function checkPromises(facts: Facts): Promised[] {
  const indexed = index(facts);
  return Object.entries(checks).map(([promise, check]) => ({ promise, broken: [...check(indexed)] }));
}

function index(facts: Facts): Indexed {
  const messageById = new Map(facts.messages.map((message) => [message.messageId, message]));
  return {
    ...facts,
    runById: new Map(facts.runs.map((run) => [run.id, run])),
    runByRunId: new Map(facts.runs.map((run) => [run.runId, run])),
    messageById,
    inputOf: (run) => messageById.get(run.inputMessageId)?.text ?? "",
  };
}

function* oneRunPerRequest({ callers, requests, runs, runByRunId }: Indexed): Generator<string> {
  const stored = new Map(requests.map((request) => [request.requestId, request.runId]));
  for (const { requestId, runIds } of callers.sent) {
    if (runIds.size > 0 && !runIds.has(stored.get(requestId) ?? "")) yield `request ${requestId} is not remembered`;
  }
  for (const { requestId, runId } of requests) {
    if (!runByRunId.has(runId)) yield `request ${requestId} was accepted, and its run ${runId} is not there`;
  }
  const asked = requests.map((request) => request.runId);
  if (new Set(asked).size !== asked.length) yield "two requests share a run";
  for (const run of runs.filter(isAsked)) if (!asked.includes(run.runId)) yield `nobody asked for run ${run.runId}`;
}

/** Not a turn that followed an answer, nor one that the report of a child woke. */
function isAsked(run: RunFact): boolean {
  return (run.step === null && !isWoken(run)) || run.step === "primary";
}

function* sameRunForRepeats({ callers }: Indexed): Generator<string> {
  for (const { requestId, runIds } of callers.sent) {
    if (runIds.size > 1) yield `request ${requestId} was answered ${[...runIds].join(" and ")}`;
  }
}

function* oneUserMessagePerRun({ callers, runs, messages, runByRunId, inputOf }: Indexed): Generator<string> {
  const said = Map.groupBy(
    messages.filter(({ role }) => role === "user"),
    ({ run }) => run,
  );
  for (const run of runs) {
    const own = said.get(run.id) ?? [];
    if (own.length !== 1) yield `run ${run.runId} has ${own.length} user messages`;
    else if (own[0]!.messageId !== run.inputMessageId) yield `run ${run.runId} answers another message than its own`;
  }
  for (const { text, runIds } of callers.sent) {
    for (const run of [...runIds].map((runId) => runByRunId.get(runId))) {
      if (run && inputOf(run) !== text) yield `run ${run.runId} has the input ${inputOf(run)}, sent was ${text}`;
    }
  }
}

function* transcriptsInOrder({ callers, sessions, messages, runById }: Indexed): Generator<string> {
  const sentByRun = new Map(callers.sent.flatMap((sent) => [...sent.runIds].map((runId) => [runId, sent] as const)));
  const transcripts = Map.groupBy(messages, ({ session }) => session);
  for (const { id, key, lastSeq } of sessions) {
    const transcript = transcripts.get(id) ?? [];
    if (transcript.length !== lastSeq || transcript.some(({ seq }, place) => seq !== place + 1)) {
      yield `${key} has ${transcript.length} messages up to ${lastSeq}, with gaps`;
    }
    const inputs = transcript.filter(({ role, run }) => role === "user" && run !== 0);
    let newest = { sentAt: 0, run: 0, text: "" };
    for (const { run, text } of inputs) {
      if (run < newest.run) yield `${key}: run ${run} is older than ${newest.run} and comes after it`;
      const { sentAt = 0, acceptedAt } = sentByRun.get(runById.get(run)?.runId ?? "") ?? {};
      if (acceptedAt !== undefined && acceptedAt < newest.sentAt) {
        yield `${key}: ${text} was accepted before ${newest.text} was sent, and comes after it`;
      }
      if (sentAt >= newest.sentAt) newest = { sentAt, run, text };
      else newest = { ...newest, run };
    }
  }
}

function* endedAsAsked({ runs, inputOf }: Indexed): Generator<string> {
  for (const run of runs) {
    const text = inputOf(run);
    const asked = text === "" ? "an input" : endingOf(toWork(text));
    if (run.state !== asked) yield `run ${run.runId} is ${run.state}, not ${asked}: ${text}`;
  }
}

function* nothingStuck({ runs }: Indexed): Generator<string> {
  for (const [session, lane] of Map.groupBy(runs, (run) => run.session)) {
    const heads = lane.filter(({ state }) => state === "ready" || state === "running").length;
    if (heads > 1) yield `session ${session} has ${heads} heads`;
    if (heads === 0 && lane.some(({ state }) => state === "waiting")) yield `session ${session} waits for nothing`;
  }
  for (const { runId, leased } of runs) if (leased) yield `run ${runId} is still leased`;
}

function* oneFinalMessage({ runs, messages, messageById, inputOf }: Indexed): Generator<string> {
  const said = Map.groupBy(
    messages.filter(({ role }) => role === "assistant"),
    ({ run }) => run,
  );
  for (const run of runs) {
    const own = said.get(run.id) ?? [];
    if (own.length !== (run.state === "completed" ? 1 : 0)) {
      yield `run ${run.runId}, ${run.state}, has ${own.length} assistant messages`;
    }
    if (run.state !== "completed") continue;
    if (run.reply !== answerOf(inputOf(run))) yield `run ${run.runId} was answered ${run.reply}`;
    if (messageById.get(run.replyMessageId ?? "")?.text !== run.reply) {
      yield `run ${run.runId} has a reply that its message does not say`;
    }
  }
}

function* relayedOnce({ runs, requests, runByRunId, inputOf }: Indexed): Generator<string> {
  const stored = new Map(requests.map((request) => [request.requestId, request.runId]));
  let expected = 0;
  for (const run of runs) {
    const work = toWork(inputOf(run));
    if (work.act !== "relay") continue;
    const child = runByRunId.get(stored.get(relayRequestId(run.runId)) ?? "");
    if (child) expected++;
    if (!child) yield `run ${run.runId} has completed and its message to ${work.to} is not there`;
    else if (inputOf(child) !== relayed(work)) yield `run ${run.runId} sent ${inputOf(child)}`;
  }
  const sent = runs.filter((run) => isAsked(run) && run.sourceTool === "sessions_send").length;
  if (sent !== expected) yield `${sent} runs come from sessions, ${expected} were relayed`;
}

/** A relayed message is answered, its sender hears of it in one turn and ends it; nobody listens outside. */
function* exchangesEnded({ exchanges }: Indexed): Generator<string> {
  const expected = (exchange: ExchangeFact) =>
    exchange.endReason === "no_loop" ? ["primary"] : ["primary", "ping_pong/1"];
  for (const exchange of exchanges.filter(({ kind }) => kind === "send")) {
    const { exchangeId, closed, endReason, steps } = exchange;
    if (!closed) yield `exchange ${exchangeId} is open after ${steps.join(", ")}`;
    else if (steps.join() !== expected(exchange).join()) {
      yield `exchange ${exchangeId} ended (${endReason}) after ${steps.join(", ")}`;
    }
  }
}

const shownStates = {
  completed: RunState.COMPLETED,
  failed: RunState.FAILED,
  canceled: RunState.CANCELED,
  timed_out: RunState.TIMED_OUT,
  running: RunState.RUNNING,
  waiting: RunState.QUEUED,
  ready: RunState.QUEUED,
} as const;

function* shownAsStored({ shown, runs, messages }: Indexed): Generator<string> {
  for (const [replica, { runs: shownRuns, messages: shownMessages }] of shown.entries()) {
    if (shownRuns.length !== runs.length) yield `replica ${replica} lists ${shownRuns.length} of ${runs.length} runs`;
    const byRunId = new Map(shownRuns.map((run) => [run.runId, run]));
    for (const run of runs) {
      const other = byRunId.get(run.runId);
      if (other?.state !== shownStates[run.state] || other.reply !== (run.reply ?? "")) {
        yield `replica ${replica} shows run ${run.runId} as ${other && RunState[other.state]}, stored is ${run.state}`;
      }
    }
    const listed = new Set(shownMessages.map(({ messageId }) => messageId));
    if (listed.size !== shownMessages.length) yield `replica ${replica} lists messages twice`;
    for (const { messageId } of messages) if (!listed.has(messageId)) yield `replica ${replica} hides ${messageId}`;
  }
}
