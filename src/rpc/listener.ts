import * as http from "node:http";
import * as http2 from "node:http2";
import * as net from "node:net";
import * as tls from "node:tls";
import { formatAddress, type ListenAddress } from "./address.ts";

/**
 * One port for HTTP/1.1 and HTTP/2, in cleartext or with TLS.
 *
 *   net.Server ── first bytes "PRI"? ──┬─ yes ─▶ http2 ─┐
 *   tls.Server ── ALPN "h2"? ──────────┴─ no ──▶ http1 ─┴─▶ handler
 *
 * gRPC speaks HTTP/2 with prior knowledge in cleartext; gRPC-Web and Connect speak either. The inner servers never
 * listen themselves: connections are handed to them.
 */

export type NodeHandler = (
  request: http.IncomingMessage | http2.Http2ServerRequest,
  response: http.ServerResponse | http2.Http2ServerResponse,
) => void;

/** PEM texts. With `ca`, only clients with a certificate of these authorities get a connection. */
export interface TlsMaterial {
  readonly cert: string;
  readonly key: string;
  readonly ca?: string;
}

export interface ListenerOptions {
  readonly handler: NodeHandler;
  readonly tls?: TlsMaterial;
  /** An HTTP/2 connection that is silent this long is pinged, and dropped when no answer comes within the same time (C180). */
  readonly keepaliveMs: number;
  /** Time a new connection has to say what it speaks, headers included. Default 10 s. */
  readonly headersTimeoutMs?: number;
  /** Time a request has to arrive whole, unless it is answered before it ends. Default 60 s. */
  readonly requestTimeoutMs?: number;
}

/** Streams one HTTP/2 connection may have open; further ones wait at the client. */
const maxConcurrentStreams = 4096;
/** Megabytes Node may buffer for one HTTP/2 connection. Its default of 10 cuts a proxy's connection with ENHANCE_YOUR_CALM at 400 answers of 100 KB. */
const maxSessionMemory = 200;

export class Listener {
  readonly #http1: http.Server;
  readonly #http2: http2.Http2Server;
  readonly #front: net.Server;
  readonly #sockets = new Set<net.Socket>();
  readonly #sessions = new Set<http2.ServerHttp2Session>();
  readonly #headersTimeoutMs: number;

  constructor({ handler, tls: material, keepaliveMs, ...timeouts }: ListenerOptions) {
    this.#headersTimeoutMs = timeouts.headersTimeoutMs ?? 10_000;
    const requestTimeout = timeouts.requestTimeoutMs ?? 60_000;
    this.#http1 = http.createServer(
      {
        headersTimeout: this.#headersTimeoutMs,
        requestTimeout,
        connectionsCheckingInterval: Math.min(5_000, this.#headersTimeoutMs),
        // Longer than the idle limit of common load balancers (60 s), which otherwise reuse a connection just closed here.
        keepAliveTimeout: 75_000,
      },
      handler,
    );
    // Starts the connection tracking behind its timeouts and closeIdleConnections(), which begins when a server listens.
    this.#http1.emit("listening");
    this.#http2 = http2.createServer({ maxSessionMemory, settings: { maxConcurrentStreams } }, handler);
    this.#http2.on("request", (request, response) => limitBody(request, response, requestTimeout));
    this.#http2.on("session", (session: http2.ServerHttp2Session) => this.#watchSession(session, keepaliveMs));
    this.#http2.on("sessionError", () => {});
    const socketOptions = { noDelay: true, keepAlive: true, keepAliveInitialDelay: keepaliveMs };
    if (material === undefined) {
      this.#front = net.createServer(socketOptions, (socket) => this.#sniff(socket));
    } else {
      const options = { ...socketOptions, ...secureOptions(material), handshakeTimeout: this.#headersTimeoutMs };
      this.#front = tls.createServer({ ...options, ALPNProtocols: ["h2", "http/1.1"] }, (socket) =>
        this.#handOver(socket, socket.alpnProtocol === "h2"),
      );
    }
    this.#front.on("connection", (socket: net.Socket) => {
      this.#sockets.add(socket);
      socket.once("close", () => this.#sockets.delete(socket));
    });
  }

  /** Binds the address and returns it with the port it got. Rejects with ListenError. */
  listen(address: ListenAddress): Promise<ListenAddress> {
    const { host } = address;
    return new Promise((resolve, reject) => {
      const refuse = (cause: Error) => reject(new ListenError(address, cause));
      this.#front.once("error", refuse);
      this.#front.listen(address.port, host, () => {
        this.#front.off("error", refuse);
        resolve({ host, port: (this.#front.address() as net.AddressInfo).port });
      });
    });
  }

  /** Uses new certificates for connections made from now on; open ones go on. Throws and changes nothing when they do not fit. */
  replaceCertificates(material: TlsMaterial): void {
    if (this.#front instanceof tls.Server) this.#front.setSecureContext(secureOptions(material));
  }

  /**
   * Stops accepting, tells HTTP/2 peers to go away, waits for calls in flight up to graceMs, then cuts (C181).
   * Returns the number of connections that were cut.
   */
  async close(graceMs: number): Promise<number> {
    const closed = new Promise<void>((resolve) => this.#front.close(() => resolve()));
    this.#http1.close();
    this.#http1.closeIdleConnections();
    for (const session of this.#sessions) session.close();
    const cutting = setTimeout(() => this.#cut(), graceMs);
    await closed;
    clearTimeout(cutting);
    return this.#cutCount;
  }

  #cutCount = 0;

  #cut(): void {
    this.#cutCount = this.#sockets.size;
    for (const session of this.#sessions) session.destroy();
    this.#http1.closeAllConnections();
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Waits for the first three bytes: no HTTP/1.1 method begins with "PRI", the HTTP/2 preface does. */
  #sniff(socket: net.Socket): void {
    const giveUp = () => socket.destroy();
    const timer = setTimeout(giveUp, this.#headersTimeoutMs);
    socket.on("error", giveUp);
    socket.once("close", () => clearTimeout(timer));
    let seen = Buffer.alloc(0);
    const look = () => {
      for (let chunk: Buffer | null = socket.read(); chunk !== null; chunk = socket.read()) {
        seen = Buffer.concat([seen, chunk]);
      }
      const head = seen.toString("latin1", 0, 3);
      if (head.length < 3 && "PRI".startsWith(head)) {
        socket.once("readable", look);
        return;
      }
      clearTimeout(timer);
      socket.off("error", giveUp);
      socket.unshift(seen);
      this.#handOver(socket, head === "PRI");
    };
    socket.once("readable", look);
  }

  #handOver(socket: net.Socket, speaksHttp2: boolean): void {
    (speaksHttp2 ? this.#http2 : this.#http1).emit("connection", socket);
  }

  #watchSession(session: http2.ServerHttp2Session, keepaliveMs: number): void {
    this.#sessions.add(session);
    const stopPings = pingWhileOpen(session, keepaliveMs);
    session.once("close", () => {
      stopPings();
      this.#sessions.delete(session);
    });
  }
}

/** Ends a stream whose request does not end in time. One that is answered by then is a conversation, or needs no more of it. */
function limitBody(request: http2.Http2ServerRequest, response: http2.Http2ServerResponse, timeoutMs: number): void {
  if (request.stream.readableEnded) return;
  const timer = setTimeout(() => {
    if (!response.headersSent) request.stream.close(http2.constants.NGHTTP2_CANCEL);
  }, timeoutMs);
  const done = () => clearTimeout(timer);
  request.stream.once("end", done).once("close", done);
}

/** Pings a connection at an interval and destroys it when an answer does not come before the next one is due. */
function pingWhileOpen(session: http2.ServerHttp2Session, intervalMs: number): () => void {
  let unanswered = false;
  const timer = setInterval(() => {
    // Destroyed, but its "close" is still to come: a ping would throw.
    if (session.destroyed) return;
    if (unanswered) {
      session.destroy();
      return;
    }
    unanswered = session.ping(() => {
      unanswered = false;
    });
  }, intervalMs);
  timer.unref();
  return () => clearInterval(timer);
}

function secureOptions({ cert, key, ca }: TlsMaterial): tls.TlsOptions {
  const clientCheck = ca === undefined ? {} : { ca, requestCert: true, rejectUnauthorized: true };
  return { cert, key, minVersion: "TLSv1.2", ...clientCheck };
}

/** An address that could not be bound; the message says what to do about it. */
export class ListenError extends Error {
  constructor(address: ListenAddress, cause: NodeJS.ErrnoException) {
    super(describeFailure(formatAddress(address), cause), { cause });
    this.name = "ListenError";
  }
}

function describeFailure(where: string, { code, message }: NodeJS.ErrnoException): string {
  switch (code) {
    case "EADDRINUSE":
      return `${where} is in use by another process; choose another port with --listen HOST:PORT (port 0 = any free one)`;
    case "EACCES":
      return `${where} may not be used by this user; choose a port above 1023 with --listen HOST:PORT`;
    case "EADDRNOTAVAIL":
    case "ENOTFOUND":
    case "EAI_AGAIN":
      return `${where} is not an address of this machine; choose another with --listen HOST:PORT`;
    default:
      return `cannot listen on ${where}: ${message}`;
  }
}
