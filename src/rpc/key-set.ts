import { readFileSync } from "node:fs";
import {
  createLocalJWKSet,
  createRemoteJWKSet,
  customFetch,
  type FetchImplementation,
  type JSONWebKeySet,
  type JWTVerifyGetKey,
} from "jose";
import type { AuthConfig } from "../config/schema.ts";
import { AppError } from "../domain/errors.ts";

/** The public keys that JWTs are verified with. */
export interface KeySet {
  /** The key a token names. Fails with identity_provider_unavailable when the keys cannot be fetched. */
  readonly getKey: JWTVerifyGetKey;
  /** Reads the file again, when they are in one. Throws KeySetError, and the old keys stay. */
  readAgain(): void;
}

/** A file of keys that cannot be used. */
export class KeySetError extends Error {
  constructor(file: string, problem: string) {
    super(`server.auth.jwt.jwksFile ${file} ${problem}`);
    this.name = "KeySetError";
  }
}

const fetchTimeoutMs = 5_000;
/** Fetched keys are used this long; unknown ones are looked for in between, at most twice a minute. */
const keysAgeMs = 600_000;
const lookAgainMs = 30_000;
/** After a failed fetch callers are refused this long without another one. */
const failurePauseMs = 1_000;
const maxKeySetBytes = 1024 * 1024;

/** Opens the keys of server.auth.jwt: reads the file at once, fetches from an address on first use. Throws KeySetError. */
export function openKeySet({ jwt }: Pick<AuthConfig, "jwt">): KeySet | undefined {
  if (jwt === undefined) return undefined;
  return jwt.jwksFile === undefined ? fetchedKeys(jwt.jwksUri!) : keysInFile(jwt.jwksFile);
}

function fetchedKeys(uri: string): KeySet {
  const getKey = createRemoteJWKSet(new URL(uri), {
    timeoutDuration: fetchTimeoutMs,
    cacheMaxAge: keysAgeMs,
    cooldownDuration: lookAgainMs,
    [customFetch]: fetchOrRefuse(),
  });
  return { getKey, readAgain() {} };
}

/** Turns every way in which keys cannot be had into one refusal, and spares a provider that is down. */
function fetchOrRefuse(): FetchImplementation {
  let failedAt = Number.NEGATIVE_INFINITY;
  return async (url, options) => {
    if (performance.now() - failedAt < failurePauseMs) throw new AppError({ kind: "identity_provider_unavailable" });
    try {
      const response = await fetch(url, options);
      if (response.status !== 200) throw new Error(`the key set's address answered with HTTP ${response.status}`);
      const text = await readBounded(response);
      createLocalJWKSet(JSON.parse(text) as JSONWebKeySet);
      return new Response(text);
    } catch (error) {
      failedAt = performance.now();
      throw new AppError({ kind: "identity_provider_unavailable" }, error);
    }
  };
}

async function readBounded({ body }: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of body ?? []) {
    bytes += chunk.byteLength;
    if (bytes > maxKeySetBytes) throw new Error(`the key set has more than ${maxKeySetBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

function keysInFile(file: string): KeySet {
  let keys = readKeys(file);
  return {
    getKey: (header, token) => keys(header, token),
    readAgain() {
      keys = readKeys(file);
    },
  };
}

function readKeys(file: string): JWTVerifyGetKey {
  let set: JSONWebKeySet;
  try {
    set = JSON.parse(readFileSync(file, "utf8")) as JSONWebKeySet;
  } catch (error) {
    throw new KeySetError(file, `cannot be read: ${(error as Error).message}`);
  }
  try {
    const keys = createLocalJWKSet(set);
    if (set.keys.every((key) => key.d === undefined && key.kty !== "oct")) return keys;
  } catch {
    throw new KeySetError(file, 'is no JSON Web Key Set: {"keys":[…]}');
  }
  throw new KeySetError(file, "holds private or shared keys; give public ones alone");
}
