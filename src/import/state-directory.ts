import { constants } from "node:fs";
import { type FileHandle, open, readdir, realpath } from "node:fs/promises";
import { join, relative, resolve, sep } from "node:path";

/** A file of the state directory that cannot be read, and why, without paths of this machine. */
export class StateFileError extends Error {
  /** It leads out of the state directory, through a link or otherwise; never read. */
  readonly outside: boolean;
  constructor(message: string, options: { outside?: boolean; cause?: unknown } = {}) {
    super(message, { cause: options.cause });
    this.name = "StateFileError";
    this.outside = options.outside ?? false;
  }
}

/** Reads files of one directory and never one outside it, whatever links or names say. */
export interface StateDirectory {
  /** Its real path. */
  readonly root: string;
  /** Names in a directory, sorted; undefined when there is none. */
  list(path: string): Promise<string[] | undefined>;
  /** Whole text of a small file; undefined when there is none. */
  readText(path: string): Promise<string | undefined>;
  /** Bytes of a file in chunks; the file is closed when the loop ends. */
  readChunks(path: string): AsyncGenerator<Buffer>;
}

export async function openStateDirectory(path: string): Promise<StateDirectory> {
  const root = await named(() => realpath(resolve(path)));
  await named(() => readdir(root));
  return {
    root,
    list: (inside) => orAbsent(async () => (await readdir(await pathInside(root, inside))).sort()),
    readText: (inside) =>
      orAbsent(async () => {
        const file = await openInside(root, inside);
        return file.readFile("utf8").finally(() => file.close());
      }),
    readChunks: (inside) => readChunks(root, inside),
  };
}

async function* readChunks(root: string, inside: string): AsyncGenerator<Buffer> {
  const file = await named(() => openInside(root, inside));
  try {
    // Each chunk has a buffer of its own: lines keep pieces of it.
    for (;;) {
      const { bytesRead, buffer } = await named(() => file.read(Buffer.allocUnsafe(chunkBytes), 0, chunkBytes));
      if (bytesRead === 0) return;
      yield buffer.subarray(0, bytesRead);
    }
  } finally {
    await file.close();
  }
}

const chunkBytes = 64 * 1024;

/** The real path is opened and no link followed at its end: what is read is what was checked. A pipe does not hang the import. */
async function openInside(root: string, inside: string): Promise<FileHandle> {
  const path = await pathInside(root, inside);
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  if ((await file.stat()).isFile()) return file;
  await file.close();
  throw new StateFileError("it is no regular file");
}

async function pathInside(root: string, inside: string): Promise<string> {
  const path = await realpath(join(root, inside));
  const way = relative(root, path);
  if (way === ".." || way.startsWith(`..${sep}`) || resolve(root, way) !== path) {
    throw new StateFileError("it leads out of the state directory", { outside: true });
  }
  return path;
}

async function orAbsent<T>(read: () => Promise<T>): Promise<T | undefined> {
  try {
    return await named(read);
  } catch (error) {
    if (error instanceof StateFileError && absent.has(codeOf(error.cause))) return undefined;
    throw error;
  }
}

const absent: ReadonlySet<string | undefined> = new Set(["ENOENT", "ENOTDIR"]);

/** Turns what the operating system says into a StateFileError. */
async function named<T>(read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    if (error instanceof StateFileError) throw error;
    throw new StateFileError(`it cannot be read (${codeOf(error) ?? "unknown reason"})`, { cause: error });
  }
}

function codeOf(error: unknown): string | undefined {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : undefined;
}
