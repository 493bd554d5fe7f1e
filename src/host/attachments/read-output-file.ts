import { realpath } from "node:fs/promises";
import { isAbsolute, relative, resolve, sep } from "node:path";
import { HostError } from "../errors.ts";
import { HeldDirectory, UnsafePath } from "./held-directory.ts";

export interface OutputFile {
  readonly name: string;
  readonly data: Uint8Array;
}

/** The one workspace a run may give files from. */
export interface OutputRoot {
  readonly workspace: string;
  /** Directory of the run's own attachments, relative to it; empty when it has none. */
  readonly attachments: string;
}

/** Largest file that is read; the service may take less. */
const MAX_BYTES = 32 * 1024 * 1024;

/**
 * Reads a file of the run's workspace (C62). Refused before anything of it is read, with a HostError (invalid_request, not retryable):
 * a path outside, also by "..", into the attachments of another session, or through a link, symbolic or hard; anything but a regular
 * file; more than 32 MiB.
 */
export async function readOutputFile(root: OutputRoot, path: string, byDescriptor?: boolean): Promise<OutputFile> {
  const names = await splitPath(root, path);
  const opened = [await HeldDirectory.open(root.workspace, byDescriptor)];
  const name = names.pop()!;
  try {
    for (const step of names) {
      const next = await opened.at(-1)!.findDirectory(step, { owned: false });
      if (!next) throw refuse(path, "does not exist");
      opened.push(next);
    }
    return { name, data: await readFileIn(opened.at(-1)!, name, path) };
  } catch (error) {
    throw error instanceof UnsafePath ? refuse(path, error.message) : error;
  } finally {
    for (const directory of opened.reverse()) await directory.close();
  }
}

async function readFileIn(directory: HeldDirectory, name: string, path: string): Promise<Uint8Array> {
  const handle = await directory.findFile(name);
  if (!handle) throw refuse(path, "does not exist");
  try {
    const { size, nlink } = await handle.stat();
    if (nlink > 1) throw refuse(path, "has another name elsewhere (a hard link)");
    if (size > MAX_BYTES) throw refuse(path, `has ${size} bytes, more than ${MAX_BYTES}`);
    const data = Buffer.alloc(size);
    for (let at = 0; at < size; ) {
      const { bytesRead } = await handle.read(data, at, size - at, at);
      if (bytesRead === 0) throw refuse(path, "was cut while it was read");
      at += bytesRead;
    }
    return data;
  } finally {
    await handle.close();
  }
}

/** The names from the workspace down to the file. */
async function splitPath({ workspace, attachments }: OutputRoot, path: string): Promise<string[]> {
  const names = namesBelow(workspace, path) ?? namesBelow(await realpath(workspace), path);
  if (!names) throw refuse(path, "is outside of the workspace");
  const [first, second, directory] = names;
  // Some file systems take capitals for the same.
  const among = first?.toLowerCase() === ".openclaw" && second?.toLowerCase() === "attachments";
  if (among && [first, second, directory].join("/") !== attachments) throw refuse(path, "belongs to another session");
  return names;
}

function namesBelow(root: string, path: string): string[] | undefined {
  if (path === "" || path.includes("\0")) return undefined;
  const below = relative(root, resolve(root, path));
  return below === "" || isAbsolute(below) || below.split(sep)[0] === ".." ? undefined : below.split(sep);
}

function refuse(path: string, what: string): HostError {
  return new HostError(`${JSON.stringify(path)} cannot be attached: ${what}`, { code: "invalid_request" });
}
