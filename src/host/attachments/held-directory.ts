import { randomBytes } from "node:crypto";
import { constants, existsSync, type Stats } from "node:fs";
import { type FileHandle, link, lstat, mkdir, open, readdir, rename, rmdir, unlink } from "node:fs/promises";
import { basename, join } from "node:path";

/** Something on a path is not what it must be, such as a link: nothing was read or written through it. */
export class UnsafePath extends Error {
  constructor(component: string, what: string) {
    super(`${component}: ${what}`);
    this.name = "UnsafePath";
  }
}

/** Begins the name of what is not whole yet. */
export const PARTIAL = ".partial-";

const { O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_WRONLY } = constants;
const OPEN_DIRECTORY = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;
const CREATE_FILE = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
/** A pipe put in a file's place must not hold up whoever opens it. */
const OPEN_FILE = O_RDONLY | O_NOFOLLOW | O_NONBLOCK;

/** Whether names can be looked up in an open directory, by the kernel's own table of descriptors. */
const HAS_DESCRIPTORS = process.platform === "linux" && existsSync("/proc/self/fd");

/**
 * An open directory, in which single names are looked up without following a link, whatever becomes of the path that led to it
 * (C60). On Linux through its descriptor; elsewhere by path, with every directory on the way compared before and after. Close it.
 */
export class HeldDirectory {
  /** Where it was when it was opened; for people and for agents. */
  readonly path: string;
  readonly #handle: FileHandle;
  readonly #stat: Stats;
  readonly #parent: HeldDirectory | undefined;
  readonly #byDescriptor: boolean;

  private constructor(
    path: string,
    handle: FileHandle,
    stat: Stats,
    parent: HeldDirectory | undefined,
    byDescriptor: boolean,
  ) {
    this.path = path;
    this.#handle = handle;
    this.#stat = stat;
    this.#parent = parent;
    this.#byDescriptor = byDescriptor;
  }

  /** Opens a directory that is trusted to be the right one, following links. Fails with ENOENT when it is missing. */
  static async open(path: string, byDescriptor = HAS_DESCRIPTORS): Promise<HeldDirectory> {
    const handle = await open(path, O_RDONLY | O_DIRECTORY);
    return new HeldDirectory(path, handle, await handle.stat(), undefined, byDescriptor);
  }

  /** Opens a directory in this one; undefined when there is none. Throws UnsafePath when it is anything else, or with `owned` somebody else's. */
  async findDirectory(name: string, { owned }: { owned: boolean }): Promise<HeldDirectory | undefined> {
    const handle = await this.#open(name, OPEN_DIRECTORY);
    if (!handle) return undefined;
    const stat = await handle.stat();
    const directory = new HeldDirectory(join(this.path, name), handle, stat, this, this.#byDescriptor);
    const user = process.geteuid?.();
    if (!owned || user === undefined || stat.uid === user) return directory;
    await directory.close();
    throw new UnsafePath(directory.path, "belongs to another user");
  }

  /** Opens a directory of ours in this one, created 0700 when it is missing. */
  async ensureDirectory(name: string): Promise<HeldDirectory> {
    const found = await this.findDirectory(name, { owned: true });
    if (found) return found;
    await this.#at(name, (path) => mkdir(path, 0o700)).catch(unlessCode("EEXIST"));
    const made = await this.findDirectory(name, { owned: true });
    if (!made) throw new UnsafePath(join(this.path, name), "vanished while it was made");
    await made.restrict();
    return made;
  }

  /** Takes every right from everybody else, whatever the umask of the process is. */
  async restrict(): Promise<void> {
    await this.#handle.chmod(0o700);
  }

  /** Opens a file in this directory for reading; undefined when there is none. Throws UnsafePath when it is no regular file. */
  async findFile(name: string): Promise<FileHandle | undefined> {
    const handle = await this.#open(name, OPEN_FILE);
    if (!handle) return undefined;
    if ((await handle.stat()).isFile()) return handle;
    await handle.close();
    throw new UnsafePath(join(this.path, name), "is no regular file");
  }

  /**
   * Creates a file 0600 under a name that is free. It appears there whole and on the disk, or not at all: written under another
   * name first, then linked, which never replaces anything. Returns false when the name is taken.
   */
  async createFile(name: string, data: Uint8Array): Promise<boolean> {
    const partial = `${PARTIAL}${randomBytes(16).toString("hex")}`;
    const handle = await this.#at(partial, (path) => open(path, CREATE_FILE, 0o600));
    try {
      await handle.chmod(0o600);
      await handle.writeFile(data);
      await handle.sync();
      await this.#at(partial, (from) => this.#at(name, (to) => link(from, to)));
      await this.#refuseSwapped(name, await handle.stat());
      return true;
    } catch (error) {
      return unlessCode("EEXIST")(error) ?? false;
    } finally {
      await handle.close();
      await this.remove(partial);
    }
  }

  /** Gives an open directory of this one another name; returns false when anything but an empty directory has that name already. */
  async renameDirectory(directory: HeldDirectory, name: string): Promise<boolean> {
    try {
      await this.#at(basename(directory.path), (from) => this.#at(name, (to) => rename(from, to)));
    } catch (error) {
      if (codeOf(error) === "ENOTEMPTY" || codeOf(error) === "EEXIST") return false;
      if (codeOf(error) === "ENOTDIR") throw new UnsafePath(join(this.path, name), "is a link, or not what it must be");
      throw error;
    }
    const found = await this.#at(name, (path) => lstat(path));
    if (!isSame(found, directory.#stat)) throw new UnsafePath(join(this.path, name), "was replaced while it was made");
    return true;
  }

  /** Removes a name that is no directory, a link itself too; nothing happens when there is none. */
  async remove(name: string): Promise<void> {
    await this.#at(name, unlink).catch(unlessCode("ENOENT"));
  }

  /** Removes a directory, which may be gone already; returns false when something is left in it. */
  async removeDirectory(name: string): Promise<boolean> {
    try {
      await this.#at(name, rmdir).catch(unlessCode("ENOENT"));
      return true;
    } catch (error) {
      return unlessCode("ENOTEMPTY")(error) ?? false;
    }
  }

  async list(): Promise<string[]> {
    return this.#at(".", (path) => readdir(path));
  }

  async close(): Promise<void> {
    await this.#handle.close();
  }

  async #open(name: string, flags: number): Promise<FileHandle | undefined> {
    try {
      return await this.#at(name, (path) => open(path, flags));
    } catch (error) {
      const code = codeOf(error);
      if (code === "ENOENT") return undefined;
      if (code !== "ELOOP" && code !== "ENOTDIR" && code !== "EMLINK" && code !== "ENXIO") throw error;
      throw new UnsafePath(join(this.path, name), "is a link, or not what it must be");
    }
  }

  /** What was linked must be what was written: somebody may have put another file under the name it was written by. */
  async #refuseSwapped(name: string, written: Stats): Promise<void> {
    const found = await this.#at(name, (path) => lstat(path));
    if (isSame(found, written)) return;
    await this.remove(name);
    throw new UnsafePath(join(this.path, name), "was replaced while it was written");
  }

  /** Does something with a name in this directory. */
  async #at<T>(name: string, act: (path: string) => Promise<T>): Promise<T> {
    if (name === "" || name === ".." || /[/\0]/.test(name)) throw new UnsafePath(this.path, "not a single name");
    if (this.#byDescriptor) return act(`/proc/self/fd/${this.#handle.fd}/${name}`);
    await this.#refuseMoved();
    const result = await act(join(this.path, name));
    await this.#refuseMoved();
    return result;
  }

  async #refuseMoved(): Promise<void> {
    if (this.#parent) await this.#parent.#refuseMoved();
    const found = await (this.#parent ? lstat(this.path) : this.#handle.stat());
    if (!isSame(found, this.#stat)) throw new UnsafePath(this.path, "was replaced while it was in use");
  }
}

export function codeOf(error: unknown): string | undefined {
  return error instanceof Error && "code" in error ? String(error.code) : undefined;
}

function unlessCode(code: string): (error: unknown) => undefined {
  return (error) => {
    if (codeOf(error) === code) return undefined;
    throw error;
  };
}

function isSame(one: Stats, other: Stats): boolean {
  return one.dev === other.dev && one.ino === other.ino;
}
