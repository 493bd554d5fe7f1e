import { createHash } from "node:crypto";
import { mkdir } from "node:fs/promises";
import type { AttachmentFile, AttachmentReceipt } from "#gen/agentsessions/v1/attachment_pb.js";
import type { Run } from "#gen/agentsessions/v1/run_pb.js";
import { HeldDirectory, UnsafePath } from "./held-directory.ts";
import { formatManifest, isFileName, MANIFEST } from "./manifest.ts";

/** What is put where, and where it comes from. */
export interface Placement {
  /** Workspace of the run, absolute; created 0700 when it is missing. */
  readonly workspace: string;
  readonly run: Run;
  readonly receipt: AttachmentReceipt;
  /** Returns the content of a file from the service. */
  readonly fetch: (file: AttachmentFile) => Promise<Uint8Array>;
}

const RELATIVE_DIRECTORY = /^(\.openclaw)\/(attachments)\/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/;

/**
 * Puts the files of a spawned session into its workspace (S6.6, C60): below it no link is followed, directories are 0700 and ours,
 * files 0600, created exclusively, and what the receipt says they are. Returns the absolute directory.
 *
 * Where a manifest says that they are there already, only missing ones are put again: the agent may have changed its copies. Without
 * one, what an earlier attempt left must have the right content. Any failure leaves neither a partial file nor what this call has put.
 */
export async function placeFiles(placement: Placement, byDescriptor?: boolean): Promise<string> {
  const { workspace, receipt } = placement;
  const names = splitDirectory(receipt);
  await mkdir(workspace, { recursive: true, mode: 0o700 });
  const path = [await HeldDirectory.open(workspace, byDescriptor)];
  try {
    for (const name of names) path.push(await path.at(-1)!.ensureDirectory(name));
    const [parent, directory] = path.slice(-2) as [HeldDirectory, HeldDirectory];
    await directory.restrict();
    await fill(directory, placement, () => parent.removeDirectory(names.at(-1)!));
    return directory.path;
  } finally {
    for (const directory of path.reverse()) await directory.close();
  }
}

async function fill(
  directory: HeldDirectory,
  placement: Placement,
  removeDirectory: () => Promise<boolean>,
): Promise<void> {
  const complete = await exists(directory, MANIFEST);
  const put: string[] = [];
  try {
    for (const file of placement.receipt.files) {
      if (await isThere(directory, file, complete)) continue;
      const data = await placement.fetch(file);
      refuseOther(file, data, "came from the service with another content than its receipt says");
      if (await directory.createFile(file.name, data)) put.push(file.name);
      else await isThere(directory, file, false);
    }
    // Another attempt may have been faster; it wrote the same.
    if (!complete) await directory.createFile(MANIFEST, Buffer.from(formatManifest(placement.receipt, placement.run)));
  } catch (error) {
    if (!complete) await takeBack(directory, put, removeDirectory).catch(() => {});
    throw error;
  }
}

/** Whether a file is there. Throws UnsafePath when something else has its name, or, with its directory incomplete, another content. */
async function isThere(directory: HeldDirectory, file: AttachmentFile, complete: boolean): Promise<boolean> {
  const handle = await directory.findFile(file.name);
  if (!handle) return false;
  try {
    if (complete) return true;
    const { size } = await handle.stat();
    if (BigInt(size) !== file.bytes) throw new UnsafePath(file.name, "is there already, with another content");
    refuseOther(file, await handle.readFile(), "is there already, with another content");
    return true;
  } finally {
    await handle.close();
  }
}

async function exists(directory: HeldDirectory, name: string): Promise<boolean> {
  const handle = await directory.findFile(name);
  await handle?.close();
  return handle !== undefined;
}

async function takeBack(
  directory: HeldDirectory,
  put: readonly string[],
  removeDirectory: () => Promise<boolean>,
): Promise<void> {
  if (await exists(directory, MANIFEST)) return;
  for (const name of put) await directory.remove(name);
  await removeDirectory();
}

function refuseOther(file: AttachmentFile, data: Uint8Array, what: string): void {
  const sha256 = createHash("sha256").update(data).digest("hex");
  if (BigInt(data.byteLength) !== file.bytes || sha256 !== file.sha256) throw new UnsafePath(file.name, what);
}

/** Checks what the wire says before anything is touched; returns the names of the directories. */
function splitDirectory({ relativeDirectory, files }: AttachmentReceipt): string[] {
  const names = RELATIVE_DIRECTORY.exec(relativeDirectory)?.slice(1);
  if (!names) throw new UnsafePath(relativeDirectory, "is no directory for attachments");
  for (const { name } of files) if (!isFileName(name)) throw new UnsafePath(JSON.stringify(name), "is no file name");
  return names;
}
