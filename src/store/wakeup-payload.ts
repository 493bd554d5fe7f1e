import type { Topic } from "./wakeups.ts";

/** NOTIFY refuses 8,000 bytes; the rest is left for what a proxy may add (C186). */
export const maxPayloadBytes = 7_800;

/** Stands for every topic: sent when one does not fit, or when too many wait. */
export const everything = "*";

/** Splits hints into NOTIFY payloads that fit; `origin` names the sender, who has delivered them already. */
export function packHints(origin: string, topics: Iterable<Topic>): string[] {
  const head = JSON.stringify(origin);
  const payloads: string[] = [];
  let body = "";
  const push = () => {
    if (body !== "") payloads.push(`[${head}${body}]`);
    body = "";
  };
  for (const topic of topics) {
    const item = `,${JSON.stringify(topic)}`;
    const room = maxPayloadBytes - Buffer.byteLength(head) - 2;
    if (Buffer.byteLength(item) > room) return [JSON.stringify([origin, everything])];
    if (Buffer.byteLength(body) + Buffer.byteLength(item) > room) push();
    body += item;
  }
  push();
  return payloads;
}

/** Reads a payload; undefined when it is not one of ours. */
export function unpackHints(payload: string): { origin: string; topics: (Topic | typeof everything)[] } | undefined {
  try {
    const parsed: unknown = JSON.parse(payload);
    if (!Array.isArray(parsed) || !parsed.every((item) => typeof item === "string")) return undefined;
    const [origin, ...topics] = parsed as [string, ...Topic[]];
    return origin === undefined ? undefined : { origin, topics };
  } catch {
    return undefined;
  }
}
