import { type Selectable, sql } from "kysely";
import type { ExchangeView } from "../domain/exchange.ts";
import type { Scope, Target } from "../domain/visibility.ts";
import type { Db, ExchangeTable } from "./database.ts";
import { rowToExchange } from "./exchanges.ts";
import { whereVisible } from "./visible.ts";

/** Filters of a list of exchanges, all ANDed. */
export interface ExchangeFilter {
  /** Internal id. */
  readonly requester?: bigint;
  /** Internal id. */
  readonly target?: bigint;
  readonly openOnly: boolean;
}

/** An exchange, and what decides who may see it: its sessions, in whatever state they are now. */
export interface ExchangeAndSides {
  readonly exchange: ExchangeView;
  readonly sides: readonly (Target & { readonly reserved: boolean })[];
}

type ViewRow = Selectable<ExchangeTable> & {
  requester_key: string | null;
  target_key: string;
  run_ids: string[];
  delivery_id: string | null;
};

const viewColumns = sql`x.*, rq.session_key as requester_key, tg.session_key as target_key,
  array(select run_id::text from runs where exchange = x.id order by id) as run_ids,
  (select delivery_id from deliveries where exchange = x.id order by id desc limit 1) as delivery_id`;

const withSides = sql`exchanges x
  join sessions tg on tg.id = x.target_session
  left join sessions rq on rq.id = x.requester_session`;

/** The exchange with this id, in any phase. */
export async function findExchange(db: Db, exchangeId: string): Promise<ExchangeAndSides | undefined> {
  const { rows } = await sql<ViewRow>`
    select ${viewColumns} from ${withSides} where x.exchange_id = ${exchangeId}::uuid`.execute(db);
  const [row] = rows;
  if (row === undefined) return undefined;
  const sides = await db
    .selectFrom("sessions")
    .select(["address_id", "agent_id", "root_id", "path", "reserved"])
    .where("id", "in", [row.target_session, row.requester_session ?? row.target_session])
    .execute();
  return {
    exchange: rowToView(row),
    sides: sides.map((side) => ({
      addressId: side.address_id,
      agentId: side.agent_id,
      rootId: side.root_id,
      path: side.path.map(BigInt),
      reserved: side.reserved,
    })),
  };
}

/**
 * Exchanges newest first, those below `before`: those of which either session is in scope. Ids are given out in order of
 * creation, so pages neither skip nor repeat.
 */
export async function listExchanges(
  db: Db,
  scope: Scope,
  { requester, target, openOnly }: ExchangeFilter,
  before: bigint | undefined,
  limit: number,
): Promise<ExchangeView[]> {
  const conditions = [
    whereSideVisible(scope),
    ...(requester === undefined ? [] : [sql`x.requester_session = ${requester}`]),
    ...(target === undefined ? [] : [sql`x.target_session = ${target}`]),
    ...(openOnly ? [sql`x.closed_at is null`] : []),
    ...(before === undefined ? [] : [sql`x.id < ${before}`]),
  ];
  const { rows } = await sql<ViewRow>`
    select ${viewColumns} from ${withSides} where ${sql.join(conditions, sql` and `)}
    order by x.id desc limit ${limit}`.execute(db);
  return rows.map(rowToView);
}

/** Reserved sessions are the operators' alone (S2.5). */
function whereSideVisible(scope: Scope) {
  if (scope.kind === "everything") return sql`true`;
  return sql`((not tg.reserved and ${whereVisible(scope, "tg")}) or (not rq.reserved and ${whereVisible(scope, "rq")}))`;
}

function rowToView(row: ViewRow): ExchangeView {
  return {
    ...rowToExchange(row),
    ...(row.requester_key !== null && { requesterSessionKey: row.requester_key }),
    targetSessionKey: row.target_key,
    runIds: row.run_ids,
    ...(row.delivery_id !== null && { deliveryId: row.delivery_id }),
  };
}
