import type { HostLog } from "../options.ts";
import { codeOf, HeldDirectory, PARTIAL, UnsafePath } from "./held-directory.ts";
import { MANIFEST, MAX_MANIFEST_BYTES, type Manifest, parseManifest } from "./manifest.ts";

export interface Cleaning {
  /** Whether the session that the files were given to was deleted; false when that is not certain. */
  readonly isDeleted: (manifest: Manifest) => Promise<boolean>;
  readonly log: HostLog;
}

export interface Cleaned {
  /** How many directories were cleaned. */
  readonly cleaned: number;
  /** Whether something stays that may have to go later. */
  readonly left: boolean;
}

/** Of a session's files, also where a host was killed before they had all come. */
const DIRECTORY_NAME = /^(\.partial-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/**
 * Removes the files of deleted sessions from a workspace (S6.6, C60): exactly those a manifest names, then the manifest, then the
 * directory when nothing else is in it. Follows no link. What an agent put there stays and is logged.
 */
export async function cleanWorkspace(workspace: string, cleaning: Cleaning, byDescriptor?: boolean): Promise<Cleaned> {
  const path: HeldDirectory[] = [];
  let cleaned = 0;
  try {
    path.push(await HeldDirectory.open(workspace, byDescriptor));
    for (const name of [".openclaw", "attachments"]) {
      const found = await path.at(-1)!.findDirectory(name, { owned: true });
      if (!found) return { cleaned, left: false };
      path.push(found);
    }
    const parent = path.at(-1)!;
    const names = (await parent.list()).filter((name) => DIRECTORY_NAME.test(name));
    for (const name of names) if (await cleanDirectory(parent, name, cleaning)) cleaned++;
    return { cleaned, left: cleaned < names.length };
  } catch (error) {
    const isGone = codeOf(error) === "ENOENT";
    if (!isGone) cleaning.log.warn({ err: error, workspace }, "a workspace could not be cleaned");
    return { cleaned, left: !isGone };
  } finally {
    for (const directory of path.reverse()) await directory.close();
  }
}

/** One directory that cannot be cleaned keeps no other from it. */
async function cleanDirectory(parent: HeldDirectory, name: string, { isDeleted, log }: Cleaning): Promise<boolean> {
  let directory: HeldDirectory | undefined;
  try {
    directory = await parent.findDirectory(name, { owned: true });
    const manifest = directory && (await readManifest(directory));
    if (!directory || !manifest || !(await isDeleted(manifest))) return false;
    await removeFiles(directory, manifest);
    const emptied = await parent.removeDirectory(name);
    if (!emptied) log.warn({ directory: directory.path }, "files of an agent stay where attachments were");
    return true;
  } catch (error) {
    log.warn(
      { err: error, directory: directory?.path ?? name },
      "attachments of a deleted session could not be removed",
    );
    return false;
  } finally {
    await directory?.close();
  }
}

/** Undefined without a manifest: the directory was made just now, or is not ours. */
async function readManifest(directory: HeldDirectory): Promise<Manifest | undefined> {
  const handle = await directory.findFile(MANIFEST);
  if (!handle) return undefined;
  try {
    const { size } = await handle.stat();
    const manifest = size <= MAX_MANIFEST_BYTES ? parseManifest(await handle.readFile("utf8")) : undefined;
    if (!manifest) throw new UnsafePath(`${directory.path}/${MANIFEST}`, "is no manifest");
    return manifest;
  } finally {
    await handle.close();
  }
}

/** The manifest goes last, so that what is interrupted here is done again. */
async function removeFiles(directory: HeldDirectory, { names }: Manifest): Promise<void> {
  const partial = (await directory.list()).filter((name) => name.startsWith(PARTIAL));
  for (const name of [...names, ...partial, MANIFEST]) await directory.remove(name);
}
