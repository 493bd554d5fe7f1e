import { type ApiToken, type ApiTokenState, apiTokenState } from "../domain/api-token.ts";
import { listTokenRows } from "../store/tokens.ts";
import type { App } from "./context.ts";

export interface ApiTokenView extends ApiToken {
  readonly state: ApiTokenState;
}

/** Lists all API tokens ever made, newest first; none of their secrets, which nobody has stored. */
export async function listTokens(app: Pick<App, "db" | "clock">): Promise<ApiTokenView[]> {
  const now = app.clock.now();
  return (await listTokenRows(app.db)).map((token) => ({ ...token, state: apiTokenState(token, now) }));
}
