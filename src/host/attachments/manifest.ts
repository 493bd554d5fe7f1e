import type { AttachmentReceipt } from "#gen/agentsessions/v1/attachment_pb.js";
import type { Run } from "#gen/agentsessions/v1/run_pb.js";

/** Beside the files: says whose they are. Written before the first of them, so that none is without an owner when the host is killed. */
export const MANIFEST = ".manifest.json";

/** What cleaning needs of a manifest. Names alone: no path in it is ever followed (C60). */
export interface Manifest {
  readonly sessionId: string;
  readonly sessionKey: string;
  readonly names: readonly string[];
}

/** Longest manifest that is read: a thousand files, the most that can be configured, with the longest names and types are below. */
export const MAX_MANIFEST_BYTES = 4 * 1024 * 1024;

export function formatManifest(receipt: AttachmentReceipt, run: Run): string {
  const { count, relativeDirectory, files } = receipt;
  const manifest = {
    version: 1,
    sessionId: run.sessionId,
    sessionKey: run.sessionKey,
    runId: run.runId,
    relativeDirectory,
    count,
    totalBytes: Number(receipt.totalBytes),
    files: files.map(({ name, bytes, sha256, mimeType }) => ({ name, bytes: Number(bytes), sha256, mimeType })),
  };
  return `${JSON.stringify(manifest, undefined, 2)}\n`;
}

/** Undefined for anything that is not a manifest of version 1, or that names what no file of a receipt can be called. */
export function parseManifest(text: string): Manifest | undefined {
  try {
    const { version, sessionId, sessionKey, files } = JSON.parse(text);
    const names: unknown[] = files.map((file: { name: unknown }) => file.name);
    if (version !== 1 || typeof sessionId !== "string" || typeof sessionKey !== "string") return undefined;
    return names.every(isFileName) ? { sessionId, sessionKey, names } : undefined;
  } catch {
    return undefined;
  }
}

/** The rules of S6.6 that keep a file in its directory; the host does not take the service's word for them. */
export function isFileName(name: unknown): name is string {
  return (
    typeof name === "string" &&
    name !== "" &&
    name !== "." &&
    name !== ".." &&
    name.toLowerCase() !== MANIFEST &&
    Buffer.byteLength(name) <= 255 &&
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is refused.
    !/[/\\\u0000-\u001f\u007f-\u009f]/.test(name)
  );
}
