import { randomUUID } from "node:crypto";
import fc from "fast-check";
import { sql } from "kysely";
import { beforeAll, expect, test } from "vitest";
import { evaluateScope, isInScope, type Scope, scopeForChange } from "../../src/domain/visibility.ts";
import type { Db } from "../../src/store/database.ts";
import { listRuns } from "../../src/store/run-list.ts";
import { hidesSessions, listSessions, type SessionFilter } from "../../src/store/session-list.ts";
import { whereVisible } from "../../src/store/visible.ts";
import { testDatabase } from "../support/database.ts";
import { type AnyNode, anyRules, anySessions } from "../support/random-worlds.ts";

let db: Db;
beforeAll(async () => {
  db = (await testDatabase()).db;
});

/** A session of a world, with what makes lists include it or not. */
interface Stored extends AnyNode {
  readonly sessionId: string;
  readonly kind: "main" | "group" | "other";
  readonly label: "a" | "b" | undefined;
  readonly state: "active" | "archived" | "superseded" | "deleted";
  readonly reserved: boolean;
  readonly updatedAt: Date;
  /** Who sent its one run; the run has the session's own internal id. */
  readonly sentBy: Stored | undefined;
}

const traits = fc.record({
  kind: fc.constantFrom("main" as const, "group" as const, "other" as const),
  label: fc.constantFrom("a" as const, "b" as const, undefined),
  state: fc.constantFrom(
    "active" as const,
    "active" as const,
    "archived" as const,
    "superseded" as const,
    "deleted" as const,
  ),
  reserved: fc.nat(3).map((n) => n === 0),
  minute: fc.nat(5),
  sender: fc.option(fc.nat(9)),
});
type Traits = typeof traits extends fc.Arbitrary<infer T> ? T : never;

/** Sessions with one run each. A key is taken by its newest session at most; older ones were reset. */
const anyWorld = fc
  .tuple(anySessions, fc.array(traits, { minLength: 10, maxLength: 10 }))
  .map(([nodes, seeds]) => toWorld(nodes, seeds));

function toWorld(nodes: readonly AnyNode[], seeds: readonly Traits[]): Stored[] {
  const newest = new Map(nodes.map((each, index) => [each.sessionKey, index]));
  const world: Stored[] = [];
  for (const [index, each] of nodes.entries()) {
    const { kind, label, state, reserved, minute, sender } = seeds[index]!;
    world.push({
      ...each,
      sessionId: randomUUID(),
      kind,
      label,
      state: newest.get(each.sessionKey) === index ? state : state === "deleted" ? "deleted" : "superseded",
      reserved,
      updatedAt: new Date(Date.UTC(2026, 0, 1, 0, minute)),
      sentBy: sender === null ? undefined : world[sender],
    });
  }
  return world;
}

const kinds = { main: 1, group: 2, other: 6 } as const;
const states = { active: 1, archived: 2, superseded: 3, deleted: 4 } as const;

async function store(world: readonly Stored[]): Promise<void> {
  await sql`delete from runs`.execute(db);
  await sql`delete from sessions`.execute(db);
  for (const each of world) {
    await sql`
      insert into sessions (id, session_id, session_key, agent_id, kind, chat_type, state, reserved, label, address_id, parent_id, root_id, path, created_at, updated_at, archived_at)
      values (${each.session}, ${each.sessionId}, ${each.sessionKey}, ${each.agentId}, ${kinds[each.kind]}, 1, ${states[each.state]}, ${each.reserved},
        ${each.label ?? null}, ${each.addressId}, ${each.parent}, ${each.rootId}, ${[...each.path]}::bigint[], ${each.updatedAt}, ${each.updatedAt},
        ${each.state === "archived" ? each.updatedAt : null})`.execute(db);
    await sql`
      insert into runs (id, run_id, session, agent_id, state, ready_at, created_at, ended_at, provenance, source_session_id) overriding system value
      values (${each.session}, ${randomUUID()}, ${each.session}, ${each.agentId}, ${each.label === "a" ? 3 : 1}, ${each.updatedAt}, ${each.updatedAt},
        ${each.label === "a" ? each.updatedAt : null}, '{}', ${each.sentBy?.sessionId ?? null})`.execute(db);
  }
}

const anyFilter: fc.Arbitrary<Omit<SessionFilter, "parent"> & { parentIndex: number | null }> = fc.record({
  archived: fc.boolean(),
  kinds: fc.subarray(["main", "group", "other"] as const),
  agentIds: fc.constantFrom<readonly string[]>([], [], ["nova"], ["otter"], ["nova", "quill"]),
  parentIndex: fc.option(fc.nat(9), { freq: 2 }),
});
const anyLabel = fc.constantFrom(undefined, undefined, "a");

function isListed(target: Stored, filter: SessionFilter): boolean {
  return (
    !target.reserved &&
    target.state === (filter.archived ? "archived" : "active") &&
    (filter.kinds.length === 0 || filter.kinds.includes(target.kind)) &&
    (filter.agentIds.length === 0 || filter.agentIds.includes(target.agentId)) &&
    (filter.label === undefined || target.label === filter.label) &&
    (filter.parent === undefined || target.path.at(-2) === filter.parent)
  );
}

function newestFirst(a: Stored, b: Stored): number {
  return b.updatedAt.getTime() - a.updatedAt.getTime() || Number(b.session - a.session);
}

/** Every scope somebody in the world may have, an agent host's included. */
const anyScope = fc.record({
  rules: anyRules,
  sandboxed: fc.boolean(),
  changes: fc.boolean(),
  hostPatterns: fc.constantFrom<readonly string[] | null>(null, null, null, null, ["nova"], ["n*", "otter"], ["*"], []),
  requester: fc.nat(9),
});

function scopeIn(world: readonly Stored[], seed: typeof anyScope extends fc.Arbitrary<infer T> ? T : never): Scope {
  if (seed.hostPatterns !== null) return { kind: "agents", patterns: seed.hostPatterns };
  const scope = evaluateScope(seed.rules, world[seed.requester % world.length]!, seed.sandboxed);
  return seed.changes ? scopeForChange(scope) : scope;
}

async function listAll(scope: Scope, filter: SessionFilter): Promise<bigint[]> {
  const found: bigint[] = [];
  for (let position: { updatedAt: Date; id: bigint } | undefined; ; ) {
    const page = await listSessions(db, scope, filter, position, 3);
    found.push(...page.map(({ id }) => id));
    const last = page.at(-1);
    if (page.length < 3 || last === undefined) return found;
    position = { updatedAt: last.updatedAt, id: last.id };
  }
}

test("isInScope and its SQL agree: one by one, in lists of sessions, in what is hidden, in lists of runs", {
  timeout: 60_000,
}, async () => {
  await fc.assert(
    fc.asyncProperty(
      anyWorld,
      fc.array(fc.tuple(anyScope, anyFilter, anyLabel), { minLength: 8, maxLength: 8 }),
      async (world, questions) => {
        await store(world);
        for (const [seed, { parentIndex, ...rest }, label] of questions) {
          const scope = scopeIn(world, seed);
          const visible = world.filter((target) => isInScope(scope, target));
          const { rows } = await sql<{
            id: bigint;
          }>`select id from sessions where ${whereVisible(scope)} order by id`.execute(db);
          expect(rows.map(({ id }) => id)).toEqual(visible.map(({ session }) => session));

          const parent = parentIndex === null ? undefined : world[parentIndex];
          const coarse: SessionFilter = { ...rest, ...(parent !== undefined && { parent: parent.addressId }) };
          const filter = { ...coarse, ...(label !== undefined && { label }) };
          const listed = visible.filter((target) => isListed(target, filter)).sort(newestFirst);
          expect(await listAll(scope, filter)).toEqual(listed.map(({ session }) => session));
          const hidden = world.some((target) => isListed(target, coarse) && !isInScope(scope, target));
          expect(await hidesSessions(db, scope, filter)).toBe(hidden);

          await checkRuns(world, scope, coarse, parent);
        }
      },
    ),
    { seed: 8_121, numRuns: 40 },
  );
});

async function checkRuns(
  world: readonly Stored[],
  scope: Scope,
  { agentIds }: SessionFilter,
  session: Stored | undefined,
): Promise<void> {
  const own = "requester" in scope ? scope.requester.addressId : undefined;
  const mayRead = (target: Stored) =>
    !target.reserved && (isInScope(scope, target) || (own !== undefined && target.sentBy?.addressId === own));
  const [agentId] = agentIds;
  for (const done of [undefined, true, false]) {
    const wanted = world.filter(
      (target) =>
        mayRead(target) &&
        (agentId === undefined || target.agentId === agentId) &&
        (done === undefined || done === (target.label === "a")),
    );
    const filter = {
      states: done === undefined ? [] : done ? (["completed"] as const) : (["ready", "running"] as const),
      ...(agentId !== undefined && { agentId }),
    };
    const ids = async (more: object = {}) =>
      (await listRuns(db, scope, { ...filter, ...more }, undefined, 20)).map(({ id }) => id);
    const newest = (targets: readonly Stored[]) => targets.map((each) => each.session).sort((a, b) => Number(b - a));
    expect(await ids()).toEqual(newest(wanted));
    if (session === undefined) continue;
    expect(await ids({ session: session.session })).toEqual(newest(wanted.filter((each) => each === session)));
    expect(await ids({ sourceSessionId: session.sessionId })).toEqual(
      newest(wanted.filter((each) => each.sentBy === session)),
    );
  }
}
