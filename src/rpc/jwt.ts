import { errors, type JWTPayload, jwtVerify } from "jose";
import type { App } from "../app/context.ts";
import type { AuthConfig } from "../config/schema.ts";
import { CALLER_NAME, type GrantedPrincipal, toPrincipal } from "../domain/grant.ts";
import type { KeySet } from "./key-set.ts";

type JwtConfig = NonNullable<AuthConfig["jwt"]>;

/** Signatures of a key pair alone: with a shared secret, whoever verifies tokens could make them. */
const algorithms = [
  "ES256",
  "ES384",
  "ES512",
  "EdDSA",
  "Ed25519",
  "PS256",
  "PS384",
  "PS512",
  "RS256",
  "RS384",
  "RS512",
];

/**
 * Finds who a JWT of the configured issuer speaks for; undefined when it is wrong, expired, or maps to no role. Tokens
 * must expire. Why one was refused is in the log at level debug and nowhere else. Fails with identity_provider_unavailable.
 */
export async function findJwtPrincipal(
  app: Pick<App, "clock" | "log">,
  jwt: JwtConfig,
  keys: KeySet,
  token: string,
): Promise<GrantedPrincipal | undefined> {
  try {
    const payload = await verify(app, jwt, keys, token);
    const grant = findGrant(jwt, payload);
    const name = payload[jwt.nameClaim];
    if (grant !== undefined && typeof name === "string" && CALLER_NAME.test(name)) return toPrincipal(name, grant);
    const claim = grant === undefined ? jwt.roleClaim : jwt.nameClaim;
    app.log.debug({ claim }, "a JWT was refused: this claim gives nothing");
  } catch (error) {
    if (!(error instanceof errors.JOSEError)) throw error;
    app.log.debug({ code: error.code }, "a JWT was refused");
  }
  return undefined;
}

async function verify(
  { clock }: Pick<App, "clock">,
  { issuer, audience, clockToleranceSeconds }: JwtConfig,
  { getKey }: KeySet,
  token: string,
): Promise<JWTPayload> {
  const options = {
    algorithms,
    issuer,
    audience,
    clockTolerance: clockToleranceSeconds,
    currentDate: clock.now(),
    requiredClaims: ["exp"],
  };
  try {
    return (await jwtVerify(token, getKey, options)).payload;
  } catch (error) {
    if (!(error instanceof errors.JWKSMultipleMatchingKeys)) throw error;
    for await (const key of error) {
      const verified = await jwtVerify(token, key, options).catch(unlessOtherKey);
      if (verified !== undefined) return verified.payload;
    }
    throw error;
  }
}

/** A token that names no key is tried with each that fits. */
function unlessOtherKey(error: unknown): undefined {
  if (error instanceof errors.JWSSignatureVerificationFailed) return undefined;
  throw error;
}

/** The grant of the role claim: one value or a list of them, of which the first entry of the configuration counts. */
function findGrant({ roleClaim, roles }: JwtConfig, payload: JWTPayload) {
  const held: unknown[] = [readClaim(payload, roleClaim)].flat();
  return Object.entries(roles).find(([value]) => held.includes(value))?.[1];
}

/** A claim by its name, or by the path to it: "realm_access.roles". */
function readClaim(payload: JWTPayload, name: string): unknown {
  if (Object.hasOwn(payload, name)) return payload[name];
  return name.split(".").reduce<unknown>((value, step) => {
    return typeof value === "object" && value !== null && Object.hasOwn(value, step)
      ? (value as Record<string, unknown>)[step]
      : undefined;
  }, payload);
}
