import type { Random } from "./random.ts";

/**
 * kill: SIGKILL. term: SIGTERM, after which the process must end with 0. freeze: SIGSTOP, later SIGCONT.
 * kill_everything, term_everything: servers and hosts at once. kill_postmaster: the database's own supervisor has to see to it.
 */
export type Blow =
  | {
      readonly atMs: number;
      readonly act: "kill" | "term" | "freeze";
      readonly victim: Victim;
      readonly pauseMs: number;
    }
  | { readonly atMs: number; readonly act: "kill_everything" | "term_everything"; readonly pauseMs: number }
  | { readonly atMs: number; readonly act: "kill_postmaster" };

export interface Victim {
  readonly kind: "server" | "host";
  readonly index: number;
}

export interface ScheduleOptions {
  readonly durationMs: number;
  readonly leaseMs: number;
  readonly servers: number;
  readonly hosts: number;
  /** Also freezes servers and kills the postmaster. */
  readonly cruel: boolean;
}

const firstBlowMs = 1_500;

/** Draws what is done to whom, and when. */
export function drawSchedule(random: Random, options: ScheduleOptions): Blow[] {
  const blows: Blow[] = [];
  for (let atMs = firstBlowMs; atMs < options.durationMs; atMs += random.between(400, 1_800)) {
    blows.push(drawBlow(random, atMs, options));
  }
  return blows;
}

function drawBlow(random: Random, atMs: number, options: ScheduleOptions): Blow {
  const { leaseMs, servers, hosts, cruel } = options;
  const name = random.pickWeighted({
    "kill server": 20,
    "term server": 14,
    "kill host": 22,
    "term host": 14,
    "freeze host": 20,
    kill_everything: 4,
    term_everything: 2,
    "freeze server": cruel ? 6 : 0,
    kill_postmaster: cruel ? 4 : 0,
  });
  if (name === "kill_postmaster") return { atMs, act: name };
  const restartMs = random.between(100, 1_500);
  if (name === "kill_everything" || name === "term_everything") return { atMs, act: name, pauseMs: restartMs };
  const [act, kind] = name.split(" ") as ["kill" | "term" | "freeze", Victim["kind"]];
  const victim = { kind, index: random.between(0, (kind === "server" ? servers : hosts) - 1) };
  const frozenMs = kind === "host" ? leaseMs + random.between(300, 2_500) : random.between(500, 3_000);
  return { atMs, act, victim, pauseMs: act === "freeze" ? frozenMs : restartMs };
}
