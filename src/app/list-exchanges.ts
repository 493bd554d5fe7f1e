import type { ExchangeView } from "../domain/exchange.ts";
import type { Principal } from "../domain/principal.ts";
import * as store from "../store/exchange-reads.ts";
import type { App } from "./context.ts";
import { getSession } from "./resolve-session.ts";
import { scopeOf } from "./scope.ts";

export interface ListExchangesRequest {
  readonly pageSize: number;
  /** Key or session id of the asking session; unset = all. */
  readonly requester?: string;
  /** Key or session id of the asked session; unset = all. */
  readonly target?: string;
  readonly openOnly: boolean;
}

export interface ExchangePage {
  readonly exchanges: readonly ExchangeView[];
  /** Where the next page begins; absent at the end. */
  readonly next?: bigint;
}

/**
 * The exchanges of which the caller may see either session, newest first. Filters are ANDed. Fails as the guard in
 * resolve-session.ts does for a session it filters by.
 */
export async function listExchanges(
  app: App,
  principal: Principal,
  { requester, target, openOnly, pageSize }: ListExchangesRequest,
  before?: bigint,
): Promise<ExchangePage> {
  const find = async (reference: string | undefined, field: string) =>
    reference === undefined
      ? undefined
      : (await getSession(app, app.db, principal, reference, { verb: "read", field })).id;
  const asking = await find(requester, "requester");
  const asked = await find(target, "target");
  const filter = {
    openOnly,
    ...(asking !== undefined && { requester: asking }),
    ...(asked !== undefined && { target: asked }),
  };
  const found = await store.listExchanges(app.db, scopeOf(app, principal), filter, before, pageSize + 1);
  const exchanges = found.slice(0, pageSize);
  const last = exchanges.at(-1);
  return { exchanges, ...(last && found.length > pageSize && { next: last.id }) };
}
