import { type ContextValues, createContextKey, type HandlerContext } from "@connectrpc/connect";
import { AppError } from "../domain/errors.ts";
import type { Principal } from "../domain/principal.ts";

/** The header in which an operator names the session it acts as, by key or session_id. */
export const actAsHeader = "agentsessions-act-as";

/** Where authenticate.ts leaves who calls. */
export const principalKey = createContextKey<Principal | undefined>(undefined, { description: "principal" });

/** Who makes this call. Throws AppError credential_invalid when nobody was authenticated: no call goes on without one. */
export function principalOf(context: Pick<HandlerContext, "values">): Principal {
  const principal = findPrincipal(context.values);
  if (principal === undefined) throw new AppError({ kind: "credential_invalid" });
  return principal;
}

/** Who makes this call, when that is known already. */
export function findPrincipal(values: ContextValues): Principal | undefined {
  return values.get(principalKey);
}
