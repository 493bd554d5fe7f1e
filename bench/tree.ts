import type { App } from "../src/app/context.ts";
import { getSession } from "../src/app/get-session.ts";
import { listSessions, type SessionPagePosition } from "../src/app/list-sessions.ts";
import { AppError } from "../src/domain/errors.ts";
import type { SessionPrincipal } from "../src/domain/principal.ts";
import { type Bench, type Figures, percentile, rounded } from "./bench.ts";
import { openBenchApp } from "./open.ts";
import { addSpawnTree, type SpawnTree } from "./spawn-tree.ts";

const defaultRows = 100_000;
const mostDescendants = 10_000;
const pageSize = 50;
/** Not counted: statements are prepared, pages come into memory and code is compiled in them. */
const warmUpTurns = 20;

/** Listing and reading under `tree`, one call at a time, in process. */
export const tree: Bench = {
  name: "tree",
  summary:
    "lists of 50 under visibility `tree` from root, middle and leaf of 10,000 descendants among 100k sessions (--rows 1000000 for the promise: p99 < 20 ms), and single targets",
  async run({ seconds, rows = defaultRows }): Promise<Figures> {
    const bench = await openBenchApp();
    try {
      const { app } = bench;
      const descendants = Math.min(mostDescendants, Math.ceil(rows / 10));
      const spawned = await addSpawnTree(app, { others: rows - descendants, descendants, touched: "scattered" });
      const calls = Object.entries(await callsIn(app, spawned));
      const samples = calls.map((): number[] => []);
      for (let n = 0; n < warmUpTurns; n++) for (const [, call] of calls) await call();
      const end = performance.now() + seconds * 1000;
      // In turns, so that what the machine does besides falls on all alike.
      while (performance.now() < end) {
        for (const [index, [, call]] of calls.entries()) samples[index]!.push(await timed(call));
      }
      return {
        samples: samples[0]!.length,
        ...Object.fromEntries(calls.flatMap(([name], index) => figuresOf(name, samples[index]!))),
      };
    } finally {
      await bench.close();
    }
  },
};

type Call = () => Promise<unknown>;

async function callsIn(app: App, { root, middle, leaf, descendants }: SpawnTree): Promise<Record<string, Call>> {
  const [rootDeep, middleDeep] = [await findDeepPage(app, root), await findDeepPage(app, middle)];
  return {
    root: () => listPage(app, root),
    root_deep: () => listPage(app, root, rootDeep),
    middle: () => listPage(app, middle),
    middle_deep: () => listPage(app, middle, middleDeep),
    leaf: () => listPage(app, leaf),
    get_descendant: () => getSession(app, { principal: root, session: descendants.at(-1)! }),
    get_hidden: () => refused(() => getSession(app, { principal: root, session: "agent:main:bench-1" })),
  };
}

function listPage(app: App, principal: SessionPrincipal, position?: SessionPagePosition) {
  const page = { pageSize, ...(position && { position }) };
  return listSessions(app, { principal, ...page, kinds: [], messageLimit: 0, archived: false });
}

/** The page in the middle of all; undefined = the first, when there are no others. */
async function findDeepPage(app: App, principal: SessionPrincipal): Promise<SessionPagePosition | undefined> {
  const positions: SessionPagePosition[] = [];
  let next = (await listPage(app, principal)).next;
  for (; next !== undefined; next = (await listPage(app, principal, next)).next) positions.push(next);
  return positions[Math.floor(positions.length / 2)];
}

async function refused(call: Call): Promise<void> {
  const outcome = await call().catch((error: unknown) => error);
  if (!(outcome instanceof AppError) || outcome.facts.kind !== "visibility_denied") throw new Error("not refused");
}

async function timed(call: Call): Promise<number> {
  const start = performance.now();
  await call();
  return performance.now() - start;
}

function figuresOf(name: string, samples: readonly number[]): [string, number][] {
  return [
    [`${name}_p50_ms`, rounded(percentile(samples, 0.5))],
    [`${name}_p99_ms`, rounded(percentile(samples, 0.99))],
  ];
}
