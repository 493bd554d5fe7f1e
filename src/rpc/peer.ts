import type { IncomingMessage } from "node:http";
import type { Http2ServerRequest } from "node:http2";
import type { PeerCertificate, TLSSocket } from "node:tls";
import { createContextKey } from "@connectrpc/connect";
import { isLoopback } from "./address.ts";

/** What the connection of a call says about its other end. */
export interface Peer {
  /** Common name of the client certificate, when one was presented and verified. */
  readonly certificateName?: string;
  /** Whether the call names this server by a loopback address, as programs of this machine do. */
  readonly namesLoopback: boolean;
}

export const peerKey = createContextKey<Peer>({ namesLoopback: false }, { description: "peer" });

export function peerOf(request: IncomingMessage | Http2ServerRequest): Peer {
  const http2 = "stream" in request ? request : undefined;
  const socket = (http2?.stream.session?.socket ?? request.socket) as TLSSocket | undefined;
  const name = socket?.authorized ? certificateName(socket.getPeerCertificate()) : undefined;
  const namesLoopback = isLoopback(hostOf(http2?.authority ?? request.headers.host ?? ""));
  return name === undefined ? { namesLoopback } : { certificateName: name, namesLoopback };
}

function certificateName({ subject, subjectaltname }: PeerCertificate): string | undefined {
  const commonName: unknown = subject?.CN;
  const names = [commonName].flat().filter((name) => typeof name === "string" && name !== "");
  return (names[0] as string | undefined) ?? (subjectaltname || undefined);
}

/** "localhost:50051" → "localhost", "[::1]:50051" → "::1". */
function hostOf(authority: string): string {
  return authority
    .replace(/:\d*$/, "")
    .replace(/^\[(.*)\]$/, "$1")
    .toLowerCase();
}
