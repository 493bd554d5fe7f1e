/** Where a server listens. */
export interface ListenAddress {
  readonly host: string;
  /** 0 = any free port. */
  readonly port: number;
}

/** "127.0.0.1:50051", "[::1]:50051". */
export function formatAddress({ host, port }: ListenAddress): string {
  return `${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/** Whether only processes of this machine can reach the host: 127.0.0.0/8, ::1 and the name localhost. */
export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || /^(?:::ffff:)?127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(host);
}
