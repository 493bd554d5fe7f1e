import type { IncomingMessage } from "node:http";
import type { Http2ServerRequest } from "node:http2";
import type { PeerCertificate, TLSSocket } from "node:tls";
import { createContextKey } from "@connectrpc/connect";
import { isLoopback } from "./address.ts";

/** The names in a client certificate that an accepted authority signed. */
export interface ClientCertificate {
  readonly commonName?: string;
  readonly uris: readonly string[];
  readonly dnsNames: readonly string[];
}

/** What the connection of a call says about its other end. */
export interface Peer {
  /** The client certificate, when one was presented and verified. */
  readonly certificate?: ClientCertificate;
  /** Whether the call names this server by a loopback address, as programs of this machine do. */
  readonly namesLoopback: boolean;
}

export const peerKey = createContextKey<Peer>({ namesLoopback: false }, { description: "peer" });

export function peerOf(request: IncomingMessage | Http2ServerRequest): Peer {
  const http2 = "stream" in request ? request : undefined;
  const socket = (http2?.stream.session?.socket ?? request.socket) as TLSSocket | undefined;
  const certificate = socket?.authorized ? certificateOf(socket) : undefined;
  const namesLoopback = isLoopback(hostOf(http2?.authority ?? request.headers.host ?? ""));
  return { namesLoopback, ...(certificate && { certificate }) };
}

/** A connection keeps its certificate; reading it costs more than the rest of authentication. */
const certificates = new WeakMap<object, ClientCertificate>();

function certificateOf(socket: TLSSocket): ClientCertificate {
  const known = certificates.get(socket);
  if (known !== undefined) return known;
  const certificate = toClientCertificate(socket.getPeerCertificate());
  certificates.set(socket, certificate);
  return certificate;
}

/** Reads the names of a certificate as Node gives it. */
export function toClientCertificate({
  subject,
  subjectaltname = "",
}: Pick<PeerCertificate, "subject" | "subjectaltname">): ClientCertificate {
  const commonNames: unknown[] = [subject?.CN].flat();
  const commonName = commonNames.find((name) => typeof name === "string" && name !== "") as string | undefined;
  // "DNS:a.example, URI:spiffe://b/c"; a name with a comma, a quote or the like in it is written as a JSON string.
  const alternatives = [...subjectaltname.matchAll(/(?:^|, )([A-Za-z ]+):("(?:[^"\\]|\\.)*"|[^,"]*)(?=, |$)/g)];
  const namesOf = (type: string) =>
    alternatives
      .filter(([, kind]) => kind === type)
      .map(([, , name = ""]) => (name.startsWith('"') ? (JSON.parse(name) as string) : name));
  return { ...(commonName !== undefined && { commonName }), uris: namesOf("URI"), dnsNames: namesOf("DNS") };
}

/** "localhost:50051" → "localhost", "[::1]:50051" → "::1". */
function hostOf(authority: string): string {
  return authority
    .replace(/:\d*$/, "")
    .replace(/^\[(.*)\]$/, "$1")
    .toLowerCase();
}
