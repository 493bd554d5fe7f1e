/** What parseListenAddress accepts, for error sentences. */
export const listenAddressRule = "HOST:PORT, for example 127.0.0.1:50051 or [::1]:50051; port 0 = any free port";

/** Reads "HOST:PORT" or "[IPv6]:PORT". Returns undefined when the text is neither. */
export function parseListenAddress(text: string): { host: string; port: number } | undefined {
  const match = /^(?:\[([0-9A-Fa-f:.]+)\]|([^\s:[\]/]+)):(\d{1,5})$/.exec(text);
  const host = match?.[1] ?? match?.[2];
  const port = Number(match?.[3]);
  return host === undefined || port > 65_535 ? undefined : { host, port };
}
