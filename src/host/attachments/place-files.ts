import { createHash, randomUUID } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { AttachmentFile, AttachmentReceipt } from "#gen/agentsessions/v1/attachment_pb.js";
import type { Run } from "#gen/agentsessions/v1/run_pb.js";
import { HeldDirectory, PARTIAL, UnsafePath } from "./held-directory.ts";
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
 * Puts the files of a spawned session into its workspace (S6.6, C60): below it no link is followed, the directory is 0700 and ours,
 * files 0600, created exclusively, and what the receipt says they are. Returns the absolute directory.
 *
 * They are put into a directory of another name first, which gets its own once it is complete: an attempt that fails takes away what
 * it was making and nothing else, one that is killed leaves it to cleanWorkspace. Where the directory is there already, only missing
 * files are put: the agent may have changed its copies. When its manifest is gone, those that are there must have the right content.
 */
export async function placeFiles(placement: Placement, byDescriptor?: boolean): Promise<string> {
  const { workspace, receipt } = placement;
  const names = splitDirectory(receipt);
  const name = names.pop()!;
  await mkdir(workspace, { recursive: true, mode: 0o700 });
  const path = [await HeldDirectory.open(workspace, byDescriptor)];
  try {
    for (const step of names) path.push(await path.at(-1)!.ensureDirectory(step));
    const parent = path.at(-1)!;
    if (!(await complete(parent, name, placement)) && !(await make(parent, name, placement))) {
      await complete(parent, name, placement);
    }
    return join(parent.path, name);
  } finally {
    for (const directory of path.reverse()) await directory.close();
  }
}

/** Makes the directory. Returns false when it is there now: another attempt was faster. */
async function make(parent: HeldDirectory, name: string, placement: Placement): Promise<boolean> {
  const partial = `${PARTIAL}${randomUUID()}`;
  const directory = await parent.ensureDirectory(partial);
  let made = false;
  try {
    await putManifest(directory, placement);
    for (const file of placement.receipt.files) await put(directory, file, placement);
    made = await parent.renameDirectory(directory, name);
    return made;
  } finally {
    if (!made) await takeAway(parent, directory, partial).catch(() => {});
    await directory.close();
  }
}

/** Puts what is missing into the directory. Returns false when there is none. */
async function complete(parent: HeldDirectory, name: string, placement: Placement): Promise<boolean> {
  const directory = await parent.findDirectory(name, { owned: true });
  if (!directory) return false;
  try {
    await directory.restrict();
    const trusted = await exists(directory, MANIFEST);
    const missing: AttachmentFile[] = [];
    for (const file of placement.receipt.files) if (!(await isThere(directory, file, trusted))) missing.push(file);
    if (!trusted) await putManifest(directory, placement);
    for (const file of missing) await put(directory, file, placement);
    return true;
  } finally {
    await directory.close();
  }
}

/** Another attempt may put the same file at the same time; two names may be one to the file system. */
async function put(directory: HeldDirectory, file: AttachmentFile, { fetch }: Placement): Promise<void> {
  const data = await fetch(file);
  refuseOther(file, data, "came from the service with another content than its receipt says");
  if (!(await directory.createFile(file.name, data))) await isThere(directory, file, false);
}

async function putManifest(directory: HeldDirectory, { receipt, run }: Placement): Promise<void> {
  await directory.createFile(MANIFEST, Buffer.from(formatManifest(receipt, run)));
}

async function takeAway(parent: HeldDirectory, directory: HeldDirectory, name: string): Promise<void> {
  for (const file of await directory.list()) await directory.remove(file);
  await parent.removeDirectory(name);
}

/** Whether a file is there. Throws UnsafePath when something else has its name, or, unless it is trusted, it has another content. */
async function isThere(directory: HeldDirectory, file: AttachmentFile, trusted: boolean): Promise<boolean> {
  const handle = await directory.findFile(file.name);
  if (!handle) return false;
  try {
    if (trusted) return true;
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
