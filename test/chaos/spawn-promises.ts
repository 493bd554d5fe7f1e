import type { DeliveryFact, RunFact, SpawnFact } from "./facts.ts";
import type { Indexed } from "./promises.ts";
import { announced, fileName, fileOf, sha256, spawned, spawnRequestId, toWork } from "./work.ts";

/** What is promised of spawned sessions. */
export const spawnPromises = {
  "a run spawned its child once, however often it was started, with one task and one file": spawnedOnce,
  "every child ran its task and one announce, and is no longer active": childrenDone,
  "every requester was told once how its child's task ended": reportedOnce,
  "every file has its content": filesIntact,
} as const;

/** Whether a run was started by the report of a child. */
export function isWoken({ step, sourceTool }: RunFact): boolean {
  return step === null && sourceTool === "sessions_spawn";
}

function* spawnedOnce(facts: Indexed): Generator<string> {
  const { runs, requests, spawns, files, runByRunId, inputOf } = facts;
  const stored = new Map(requests.map((request) => [request.requestId, request.runId]));
  const byRequester = Map.groupBy(spawns, ({ requesterRunId }) => requesterRunId);
  const spawning = runs.filter((run) => toWork(inputOf(run)).act === "spawn");
  for (const run of spawning) {
    const [spawn, ...others] = byRequester.get(run.runId) ?? [];
    if (!spawn || others.length > 0) {
      yield `run ${run.runId} spawned ${spawn ? 1 + others.length : 0} children`;
      continue;
    }
    const task = spawned(toWork(inputOf(run)));
    const first = runByRunId.get(spawn.firstRunId);
    if (stored.get(spawnRequestId(run.runId)) !== spawn.firstRunId)
      yield `the spawn of run ${run.runId} is not remembered`;
    if (!first || first.session !== spawn.child || inputOf(first) !== task) {
      yield `child ${spawn.child} has not the task that run ${run.runId} gave it`;
    }
    const given = files.filter(({ session }) => session === spawn.child);
    const hash = sha256(fileOf(toWork(task)));
    if (given.length !== 1 || given[0]!.name !== fileName || given[0]!.sha256 !== hash) {
      yield `child ${spawn.child} has ${given.length} files, or another one than it was given`;
    }
  }
  if (spawns.length !== spawning.length) yield `${spawns.length} children, spawned by ${spawning.length} runs`;
}

function* childrenDone({ spawns, runs, exchanges }: Indexed): Generator<string> {
  const bySession = Map.groupBy(runs, ({ session }) => session);
  const exchangeById = new Map(exchanges.map((exchange) => [exchange.exchangeId, exchange]));
  for (const { child, exchangeId, active, settled } of spawns) {
    const steps = (bySession.get(child) ?? []).map(({ step }) => step).join(", ");
    if (steps !== "primary, announce") yield `child ${child} ran ${steps}`;
    const exchange = exchangeById.get(exchangeId ?? "");
    if (exchange?.kind !== "spawn" || !exchange.closed) yield `the exchange of child ${child} is not closed`;
    if (active) yield `child ${child} still counts as active`;
    if (!settled) yield `what became of the announce of child ${child} is not settled`;
  }
}

/** A requester is told by a run that wakes it; one with a chat finds the report in its transcript, and the chat gets it. */
function* reportedOnce(facts: Indexed): Generator<string> {
  const { spawns, runs, sessions, deliveries, runByRunId, inputOf } = facts;
  const announces = Map.groupBy(deliveries, ({ exchangeId }) => exchangeId);
  const sessionIds = new Map(sessions.map(({ id, sessionId }) => [id, sessionId]));
  const reports = Map.groupBy(runs.filter(isWoken), ({ sourceSession }) => sourceSession);
  let woken = 0;
  for (const spawn of spawns) {
    const announced = announces.get(spawn.exchangeId ?? "");
    if (announced) {
      yield* reportedToChat(facts, spawn, announced);
      continue;
    }
    woken++;
    const [report, ...others] = reports.get(sessionIds.get(spawn.child) ?? "") ?? [];
    if (!report || others.length > 0) yield `child ${spawn.child} was reported ${report ? 1 + others.length : 0} times`;
    else if (report.session !== spawn.requester) yield `child ${spawn.child} was reported to session ${report.session}`;
    else if (!inputOf(report).startsWith(beginOf(spawn, runByRunId))) {
      yield `child ${spawn.child} was reported as ${inputOf(report)}`;
    }
  }
  const told = [...reports.values()].flat().length;
  if (told !== woken) yield `${told} reports woke requesters, of ${woken} children`;
}

function* reportedToChat(
  { messages, runByRunId }: Indexed,
  spawn: SpawnFact,
  [announce, ...others]: readonly DeliveryFact[],
): Generator<string> {
  const { child, requester } = spawn;
  if (!announce || others.length > 0 || announce.session !== requester || announce.kind !== "announce") {
    yield `the report of child ${child} went out otherwise than once, from its requester`;
  } else if (!announce.text.startsWith(beginOf(spawn, runByRunId))) {
    yield `child ${child} was reported as ${announce.text}`;
  }
  const heard = messages.filter(
    ({ session, run, text }) => session === requester && run === 0 && text === announce?.text,
  );
  if (heard.length !== 1) yield `the requester of child ${child} has ${heard.length} messages about it`;
}

function beginOf({ firstRunId }: SpawnFact, runs: Indexed["runByRunId"]): string {
  return `Status: ${runs.get(firstRunId)?.state}\nResult: ${announced}\n`;
}

function* filesIntact({ files }: Indexed): Generator<string> {
  for (const { session, name, intact } of files) if (!intact) yield `file ${name} of session ${session} is broken`;
}
