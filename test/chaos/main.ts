import { setTimeout as sleep } from "node:timers/promises";
import { Command, InvalidArgumentError } from "commander";
import { type Arena, agentIds, leaseSeconds, prepareArena, sessionKeys } from "./arena.ts";
import { startCallers } from "./callers.ts";
import { startChat } from "./chat.ts";
import { countOpen, type Facts, readTables, readThrough } from "./facts.ts";
import { startLateHost } from "./late-host.ts";
import { checkPromises, type Promised } from "./promises.ts";
import { Random } from "./random.ts";
import { openReplica, type Replica } from "./replicas.ts";
import { drawSchedule } from "./schedule.ts";
import { Story } from "./story.ts";
import { strike } from "./strike.ts";
import type { Subject } from "./subject.ts";

interface Flags {
  readonly short: boolean;
  readonly minutes: number;
  readonly seed: number;
  readonly json: boolean;
}

const counts = { servers: 2, hosts: 3, callers: 6 };
const shortMs = 25_000;
const settleLimitMs = 90_000;
const shownBroken = 5;

await new Command("chaos")
  .description(
    "Kills, stops and freezes real servers and hosts while callers send, wait and watch, and then checks that every promise was kept.",
  )
  .option("--short", "the form for continuous integration, about a minute", false)
  .option("--minutes <N>", "how long to strike; from time to time the database's postmaster too", toMinutes, 5)
  .option("--seed <N>", "draws the same blows and messages again", toSeed, Math.floor(Math.random() * 1e9))
  .option("--json", "print one JSON object at the end, and the story to stderr", false)
  .addHelpText("after", "\nExit codes: 0 every promise was kept, 1 one was broken; its logs and data are kept then.")
  .action(run)
  .parseAsync();

async function run(flags: Flags): Promise<void> {
  const random = new Random(String(flags.seed));
  const story = new Story((line) => (flags.json ? process.stderr : process.stdout).write(`${line}\n`));
  story.tell(`seed ${flags.seed}`);
  const arena = await prepareArena(random.fork("arena"), counts);
  process.once("exit", () => {
    for (const subject of subjectsOf(arena)) subject.killAtOnce();
  });
  const interrupted = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => interrupted.abort());
  const promised = await live({ flags, random, story, arena, signal: interrupted.signal });
  const kept = promised.every(({ broken }) => broken.length === 0);
  if (kept || interrupted.signal.aborted) await arena.removeDirectory();
  process.exitCode = kept && !interrupted.signal.aborted ? 0 : 1;
  if (interrupted.signal.aborted) return story.tell("interrupted");
  report(flags, story, promised, kept ? undefined : arena.directory);
}

interface Trial {
  readonly flags: Flags;
  readonly random: Random;
  readonly story: Story;
  readonly arena: Arena;
  /** Aborts when a person has had enough. */
  readonly signal: AbortSignal;
}

/** Starts everything, strikes it, ends it, and says what was promised and what became of it. */
async function live(trial: Trial): Promise<Promised[]> {
  const { story, arena, signal } = trial;
  const replicas = arena.serverUrls.map(openReplica);
  let promised: Promised[] = [];
  try {
    await Promise.all(arena.servers.map((server) => server.start()));
    await Promise.all(arena.hosts.map((host) => host.start()));
    const down = subjectsOf(arena).filter(({ isUp }) => !isUp);
    if (down.length > 0) return [{ promise: "everything starts", broken: down.map(({ name }) => name) }];
    story.tell(`${counts.servers} servers, ${counts.hosts} hosts and ${agentIds.length} agents are up`);
    promised = await disturb(trial, replicas);
  } catch (error) {
    if (!signal.aborted) throw error;
  } finally {
    for (const replica of replicas) replica.close();
    const end = signal.aborted ? "kill" : "term";
    await Promise.all(arena.hosts.map((host) => host[end]()));
    await Promise.all(arena.servers.map((server) => server[end]()));
  }
  const faults = subjectsOf(arena).flatMap((subject) => subject.faults);
  return [
    ...promised,
    { promise: "no process ends unasked, and SIGTERM ends each with 0", broken: faults },
    { promise: "a server never fails in a way it did not foresee", broken: arena.unforeseen },
    { promise: "nothing is left running", broken: await waitForLeftovers(arena) },
  ];
}

/** Lets callers talk while the blows fall, waits for quiet, and reads what is there then. */
async function disturb({ flags, random, story, arena, signal }: Trial, replicas: Replica[]): Promise<Promised[]> {
  const stop = new AbortController();
  const people = { replicas, sessions: sessionKeys, count: counts.callers, story, stop: stop.signal };
  const callers = startCallers({ ...people, random: random.fork("callers") });
  const lateHost = startLateHost(replicas, random.fork("late host"), stop.signal);
  const chat = startChat({ replicas, agentIds, random: random.fork("chat"), stop: stop.signal });
  const durationMs = flags.short ? shortMs : flags.minutes * 60_000;
  const options = { ...counts, durationMs, leaseMs: leaseSeconds * 1000, cruel: !flags.short };
  await strike(arena, drawSchedule(random.fork("schedule"), options), story, signal);
  stop.abort();
  signal.throwIfAborted();

  story.tell("no more blows; waiting for what is under way");
  const limit = performance.now() + settleLimitMs;
  await Promise.all([callers.done, lateHost.done, chat.done]);
  const open = await settle(arena.databaseUrl, limit, signal);
  await chat.close();

  story.tell("checking");
  const tables = await readTables(arena.databaseUrl);
  const keys = tables.sessions.map(({ key }) => key);
  const shown = await Promise.all(replicas.map((replica) => readThrough(replica, keys, random)));
  const facts = { ...tables, callers, lateHost, chat, shown };
  tellCounts(story, facts);
  story.count("late writes before anyone took the run back", lateHost.tolerated());
  story.count("attempts given up by hosts", arena.gaveUp());
  const ended = {
    promise: "everything accepted comes to an end",
    broken: open === 0 ? [] : [`${open} runs and deliveries are open`],
  };
  return [ended, ...checkPromises(facts)];
}

function tellCounts(story: Story, { callers, lateHost, chat, runs, events, spawns }: Facts): void {
  story.count("messages sent", callers.sent.length);
  story.count("messages received from the chat", chat.asked.length);
  story.count("texts posted in the chat", chat.posted.length);
  story.count("runs", runs.length);
  story.count("children spawned", spawns.length);
  story.count(
    "attempts",
    runs.reduce((sum, { attempt }) => sum + attempt, 0),
  );
  story.count("events", [...events.values()].flat().length);
  story.count("watchers", callers.watched.length);
  story.count("late writes fenced", lateHost.refused.length);
}

function subjectsOf({ servers, hosts }: Arena): Subject[] {
  return [...servers, ...hosts];
}

/** Waits until every run and every delivery has ended; returns how many have not in good time. */
async function settle(databaseUrl: string, limit: number, signal: AbortSignal): Promise<number> {
  for (;;) {
    const open = await countOpen(databaseUrl).catch(() => Number.NaN);
    if (open === 0 || performance.now() > limit) return open;
    await sleep(500, undefined, { signal });
  }
}

/** A database ends a moment after the last server that held it. */
async function waitForLeftovers(arena: Arena): Promise<string[]> {
  const limit = performance.now() + 10_000;
  for (;;) {
    const left = await arena.listLeftovers();
    if (left.length === 0 || performance.now() > limit) return left;
    await sleep(200);
  }
}

function report({ json, seed }: Flags, story: Story, promised: readonly Promised[], keptIn: string | undefined): void {
  for (const [what, times] of Object.entries(story.counts).sort()) story.tell(`${String(times).padStart(7)}  ${what}`);
  const broken = promised.filter((one) => one.broken.length > 0);
  for (const { promise, broken: ways } of broken) {
    story.tell(`BROKEN: ${promise}`);
    for (const way of ways.slice(0, shownBroken)) story.tell(`        ${way}`);
    if (ways.length > shownBroken) story.tell(`        and ${ways.length - shownBroken} more`);
  }
  if (keptIn !== undefined) story.tell(`logs and data are in ${keptIn}; the same blows again: --seed ${seed}`);
  if (json) {
    const summary = { seed, held: promised.length - broken.length, broken, story: story.counts };
    process.stdout.write(`${JSON.stringify(summary)}\n`);
    return;
  }
  const held = promised.length - broken.length;
  process.stdout.write(`chaos: ${held} promises held${broken.length > 0 ? `, ${broken.length} broken` : ""}\n`);
}

function toMinutes(text: string): number {
  const minutes = Number(text);
  if (!(minutes > 0 && minutes <= 24 * 60))
    throw new InvalidArgumentError("expected minutes, more than 0 and at most 1440");
  return minutes;
}

function toSeed(text: string): number {
  const seed = Number(text);
  if (!Number.isSafeInteger(seed) || seed < 0) throw new InvalidArgumentError("expected a whole number from 0");
  return seed;
}
