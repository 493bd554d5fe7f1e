import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type CryptoKey, exportJWK, generateKeyPair, type JWK, type JWTPayload, SignJWT } from "jose";
import { closeAfterFile } from "./close-after-file.ts";

export interface SigningKey {
  readonly kid: string;
  readonly algorithm: string;
  readonly privateKey: CryptoKey;
  readonly jwk: JWK;
}

export async function signingKey(kid: string, algorithm = "ES256"): Promise<SigningKey> {
  const { privateKey, publicKey } = await generateKeyPair(algorithm);
  return { kid, algorithm, privateKey, jwk: { ...(await exportJWK(publicKey)), kid, alg: algorithm, use: "sig" } };
}

/** Signs claims as they are. `kid: undefined` leaves the key's name out. */
export function sign(key: SigningKey, claims: JWTPayload, header: { kid?: string | undefined } = key): Promise<string> {
  const { kid } = header;
  const named = { alg: key.algorithm, ...(kid !== undefined && { kid }) };
  return new SignJWT(claims).setProtectedHeader(named).sign(key.privateKey);
}

export interface KeyServer {
  readonly uri: string;
  readonly keys: JWK[];
  /** What it answers; 200 with the keys when undefined. */
  answer: { status: number; body: string } | undefined;
  fetches: number;
}

/** Serves a JSON Web Key Set on a free port; closed after the test file. */
export async function keyServer(...keys: JWK[]): Promise<KeyServer> {
  const served: Omit<KeyServer, "uri"> = { keys, answer: undefined, fetches: 0 };
  const server = createServer((_, response) => {
    served.fetches++;
    const { status, body } = served.answer ?? { status: 200, body: JSON.stringify({ keys: served.keys }) };
    response.writeHead(status, { "content-type": "application/json" }).end(body);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  closeAfterFile(async () => void server.close());
  const { port } = server.address() as AddressInfo;
  return Object.assign(served, { uri: `http://127.0.0.1:${port}/keys` });
}
