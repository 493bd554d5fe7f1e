import type { ExchangeView } from "../domain/exchange.ts";
import type { Principal } from "../domain/principal.ts";
import { isInScope } from "../domain/visibility.ts";
import { type ExchangeAndSides, findExchange } from "../store/exchange-reads.ts";
import type { App } from "./context.ts";
import { refuseHidden } from "./denial.ts";
import { scopeOf } from "./scope.ts";

/**
 * One exchange as it is now. Visible when either of its sessions is in the caller's scope; what the caller may not see, and
 * what is not there, is refused alike: with visibility_denied, or with exchange_not_found for callers that see everything.
 */
export async function getExchange(app: App, principal: Principal, exchangeId: string): Promise<ExchangeView> {
  const found = await findExchange(app.db, exchangeId);
  if (found === undefined || !maySee(app, principal, found)) {
    throw refuseHidden(app, principal, "read", { kind: "exchange_not_found", exchangeId });
  }
  return found.exchange;
}

/** Reserved sessions are the operators' alone (S2.5). */
function maySee(app: App, principal: Principal, { sides }: ExchangeAndSides): boolean {
  if (principal.role === "operator") return true;
  const scope = scopeOf(app, principal);
  return sides.some((side) => !side.reserved && isInScope(scope, side));
}
