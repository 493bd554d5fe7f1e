import type { Delivery, DeliveryAttempt, DeliveryState } from "../domain/delivery.ts";
import { clampPageSize } from "../domain/page-size.ts";
import type { Principal } from "../domain/principal.ts";
import { listAttempts } from "../store/deliveries.ts";
import { listDeliveries as listStored } from "../store/delivery-list.ts";
import type { App } from "./context.ts";
import { getSession } from "./resolve-session.ts";

export interface DeliveryQuery {
  /** Empty = all. */
  readonly states: readonly DeliveryState[];
  /** Key or session id; absent = all. */
  readonly session?: string;
  readonly channel?: string;
  readonly includeAttempts: boolean;
}

/** A delivery with its attempts, when they were asked for. */
export type DeliveryView = Delivery & { readonly attempts?: readonly DeliveryAttempt[] };

export interface DeliveryPage {
  readonly deliveries: readonly DeliveryView[];
  /** Where the next page begins; absent at the end. */
  readonly next?: bigint;
}

/**
 * Lists deliveries, newest first: all for operators, for a connector those on its channels and accounts. Default 50 a page, at
 * most 200. Filtering by session is for callers that may see it; fails as the guard in resolve-session.ts does.
 */
export async function listDeliveries(
  app: App,
  principal: Principal,
  { session, channel, states, includeAttempts }: DeliveryQuery,
  page: { readonly size: number; readonly before?: bigint },
): Promise<DeliveryPage> {
  const named =
    session === undefined
      ? undefined
      : await getSession(app, app.db, principal, session, { verb: "read", field: "session" });
  const filter = {
    states,
    ...(named && { session: named.id }),
    ...(channel !== undefined && { channel }),
    ...(principal.role === "connector" && { within: principal }),
  };
  const limit = clampPageSize(page.size);
  const found = await listStored(app.db, filter, page.before, limit + 1);
  const deliveries = found.slice(0, limit);
  const last = deliveries.at(-1);
  return {
    deliveries: includeAttempts ? await withAttempts(app, deliveries) : deliveries,
    ...(found.length > limit && last !== undefined && { next: last.id }),
  };
}

async function withAttempts(app: App, deliveries: readonly Delivery[]): Promise<DeliveryView[]> {
  const attempts = await listAttempts(
    app.db,
    deliveries.map(({ id }) => id),
  );
  return deliveries.map((delivery) => ({ ...delivery, attempts: attempts.get(delivery.id) ?? [] }));
}
