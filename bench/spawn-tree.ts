import { sql } from "kysely";
import type { App } from "../src/app/context.ts";
import type { SessionPrincipal } from "../src/domain/principal.ts";
import { channelOf } from "../src/domain/session-channel.ts";
import { findSessionById } from "../src/store/sessions.ts";

const depth = 5;

export interface SpawnTreeOptions {
  /** Sessions outside of the tree, roots all of them. */
  readonly others: number;
  /** Sessions below the root of the tree, which is at most five deep. */
  readonly descendants: number;
  /** newest = touched after all others; scattered = in between them, as in a fleet where everybody is at work. */
  readonly touched: "newest" | "scattered";
}

/** Sessions as callers. */
export interface SpawnTree {
  readonly root: SessionPrincipal;
  /** Two levels down. */
  readonly middle: SessionPrincipal;
  readonly leaf: SessionPrincipal;
  /** Keys of all descendants. */
  readonly descendants: readonly string[];
}

/** Fills an empty database with one spawn tree among other sessions, in two statements. */
export async function addSpawnTree(app: App, { others, descendants, touched }: SpawnTreeOptions): Promise<SpawnTree> {
  const now = app.clock.now();
  const total = others + descendants + 1;
  const root = others + 1;
  const children = childrenEach(descendants);
  const scattered = sql`${now}::timestamptz - make_interval(secs => (id * 7919) % ${total}::bigint)`;
  const newest = sql`${now}::timestamptz + make_interval(secs => id - ${total}::bigint)`;
  await sql`
    insert into sessions (id, session_id, session_key, agent_id, kind, chat_type, address_id, root_id, path, created_at, updated_at)
    select id, gen_random_uuid(), 'agent:main:bench-' || id, 'main', 6, 4, id, id, array[id], ${now}, ${scattered} - interval '1 day' * ${touched === "newest" ? 1 : 0}::int
    from generate_series(1, ${others}::bigint) id`.execute(app.db);
  await sql`
    with recursive tree (n, path) as (
      select 0::bigint, array[${root}::bigint]
      union all
      select child, path || ${root}::bigint + child
      from tree cross join lateral
        generate_series(n * ${children}::bigint + 1, least((n + 1) * ${children}::bigint, ${descendants}::bigint)) child
    ), numbered as (select path[cardinality(path)] as id, path from tree)
    insert into sessions (id, session_id, session_key, agent_id, kind, chat_type, address_id, root_id, parent_id, path, created_at, updated_at)
    select id, gen_random_uuid(), case when cardinality(path) = 1 then 'agent:main:bench-' else 'agent:main:subagent:bench-' end || id,
      'main', 6, 4, id, path[1], path[cardinality(path) - 1], path,
      ${now}, ${touched === "newest" ? newest : scattered}
    from numbered`.execute(app.db);
  await sql`vacuum analyze sessions`.execute(app.db);
  return {
    root: await callerOf(app, root),
    middle: await callerOf(app, root + children + 1),
    leaf: await callerOf(app, total),
    descendants: Array.from({ length: descendants }, (_, n) => `agent:main:subagent:bench-${root + 1 + n}`),
  };
}

/** The fewest children for each session with which the tree is deep enough. */
function childrenEach(descendants: number): number {
  const room = (children: number): number => (children ** (depth + 1) - children) / (children - 1);
  let children = 2;
  while (room(children) < descendants) children++;
  return children;
}

async function callerOf(app: App, id: number): Promise<SessionPrincipal> {
  const session = (await findSessionById(app.db, BigInt(id)))!;
  return { role: "session", ...session, session: session.id, channel: channelOf(session) };
}
