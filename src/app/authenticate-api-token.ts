import { API_TOKEN, type ApiToken, apiTokenState } from "../domain/api-token.ts";
import { type GrantedPrincipal, toPrincipal } from "../domain/grant.ts";
import { findTokenByHash, touchToken } from "../store/tokens.ts";
import type { App } from "./context.ts";
import { hashCredential } from "./hash-credential.ts";

/** What the database said of a token is believed this long: so long a revoked token may go on being accepted. */
const believedMs = 5_000;
/** Tokens remembered at a time. */
const maxRemembered = 1_000;
/** The last use of a token is written at this grain. */
const useGrainMs = 60_000;

export type FindApiTokenPrincipal = (token: string) => Promise<GrantedPrincipal | undefined>;

/**
 * Gives a function that finds who an API token speaks for; undefined for one that is wrong, expired or revoked. It asks
 * the database once in five seconds for each token in use, so a token is refused five seconds after it was revoked at
 * the latest, and exactly when it expires. Only good tokens are remembered: guessing pushes none of them out.
 */
export function apiTokenReader(app: Pick<App, "db" | "clock" | "log">): FindApiTokenPrincipal {
  const remembered = new Map<string, { readonly until: number; readonly token: ApiToken }>();

  const find = async (text: string, now: Date): Promise<ApiToken | undefined> => {
    const hash = hashCredential(text);
    const key = hash.toString("base64");
    const known = remembered.get(key);
    if (known !== undefined && known.until > now.getTime()) return known.token;
    const token = await findTokenByHash(app.db, hash);
    remembered.delete(key);
    if (token === undefined || apiTokenState(token, now) !== "active") return undefined;
    if (remembered.size >= maxRemembered) remembered.delete(remembered.keys().next().value!);
    remembered.set(key, { until: now.getTime() + believedMs, token });
    noteUse(app, token, now);
    return token;
  };

  return async (text) => {
    if (!API_TOKEN.test(text)) return undefined;
    const now = app.clock.now();
    const token = await find(text, now);
    if (token === undefined || apiTokenState(token, now) !== "active") return undefined;
    return toPrincipal(token.name, token.grant);
  };
}

/** Writes the use of a token down, out of the way of the call; a use that cannot be noted is no reason to refuse it. */
function noteUse({ db, log }: Pick<App, "db" | "log">, { tokenId, lastUsedAt }: ApiToken, now: Date): void {
  const noted = new Date(now.getTime() - useGrainMs);
  if (lastUsedAt !== undefined && lastUsedAt > noted) return;
  touchToken(db, tokenId, noted, now).catch((err: unknown) => {
    log.warn({ err, tokenId }, "the use of an API token could not be noted");
  });
}
