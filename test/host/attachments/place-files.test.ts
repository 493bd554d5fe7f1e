import { createHash, randomUUID } from "node:crypto";
import { chmod, lstat, mkdir, mkdtemp, readdir, readFile, rename, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { create } from "@bufbuild/protobuf";
import { beforeEach, describe, expect, test } from "vitest";
import {
  type AttachmentFile,
  type AttachmentReceipt,
  AttachmentReceiptSchema,
  RunSchema,
} from "../../../src/client/index.ts";
import { cleanWorkspace } from "../../../src/host/attachments/clean-workspace.ts";
import { UnsafePath } from "../../../src/host/attachments/held-directory.ts";
import { type Placement, placeFiles } from "../../../src/host/attachments/place-files.ts";
import { closeAfterFile } from "../../support/close-after-file.ts";

const CONTENTS: Readonly<Record<string, string>> = { "tides.csv": "pier,high\n3,21:40\n", "empty.txt": "" };
const run = create(RunSchema, {
  runId: randomUUID(),
  sessionId: randomUUID(),
  sessionKey: `agent:otter:subagent:${randomUUID()}`,
});

let root: string;
let workspace: string;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), "agentsessions-test-place-"));
  closeAfterFile(() => rm(root, { recursive: true, force: true }));
  workspace = join(root, "workspace");
});

function receiptOf(contents: Readonly<Record<string, string>> = CONTENTS): AttachmentReceipt {
  const files = Object.entries(contents).map(([name, text]) => ({
    attachmentId: randomUUID(),
    name,
    bytes: BigInt(Buffer.byteLength(text)),
    sha256: createHash("sha256").update(text).digest("hex"),
  }));
  return create(AttachmentReceiptSchema, {
    count: files.length,
    totalBytes: files.reduce((sum, { bytes }) => sum + bytes, 0n),
    relativeDirectory: `.openclaw/attachments/${randomUUID()}`,
    files,
  });
}

/** What a service with these files returns; counts what was asked for. */
function fetching(contents: Readonly<Record<string, string>> = CONTENTS) {
  const fetched: string[] = [];
  const fetch = async ({ name }: AttachmentFile) => {
    fetched.push(name);
    return Buffer.from(contents[name] ?? "");
  };
  return { fetch, fetched };
}

function placement(fields: Partial<Placement> = {}): Placement {
  return { workspace, run, receipt: receiptOf(), fetch: fetching().fetch, ...fields };
}

async function modeOf(path: string): Promise<string> {
  return ((await lstat(path)).mode & 0o777).toString(8);
}

// Both ways of looking names up: by descriptor, and by path with every directory compared before and after.
describe.each([
  ["by descriptor", true],
  ["by path", false],
])("%s", (_way, byDescriptor) => {
  const place = (fields?: Partial<Placement>) => placeFiles(placement(fields), byDescriptor);

  test.each([0o000, 0o022, 0o177])(
    "files are 0600 and directories 0700 under umask %i, with a manifest beside them",
    async (umask) => {
      const before = process.umask(umask);
      const receipt = receiptOf();
      const directory = await place({ receipt }).finally(() => process.umask(before));
      expect(directory).toBe(join(workspace, receipt.relativeDirectory));
      expect(await readFile(join(directory, "tides.csv"), "utf8")).toBe(CONTENTS["tides.csv"]);
      expect(await readFile(join(directory, "empty.txt"), "utf8")).toBe("");
      expect((await readdir(directory)).sort()).toEqual([".manifest.json", "empty.txt", "tides.csv"]);
      for (const name of await readdir(directory)) expect(await modeOf(join(directory, name))).toBe("600");
      for (const path of [directory, join(directory, ".."), join(directory, "../..")]) {
        expect(await modeOf(path)).toBe("700");
      }
      expect(JSON.parse(await readFile(join(directory, ".manifest.json"), "utf8"))).toEqual({
        version: 1,
        sessionId: run.sessionId,
        sessionKey: run.sessionKey,
        runId: run.runId,
        relativeDirectory: receipt.relativeDirectory,
        count: 2,
        totalBytes: Buffer.byteLength(CONTENTS["tides.csv"]!),
        files: receipt.files.map(({ name, bytes, sha256 }) => ({ name, bytes: Number(bytes), sha256, mimeType: "" })),
      });
    },
  );

  test.each([
    [".openclaw", ""],
    ["attachments", ".openclaw"],
    ["the directory itself", ".openclaw/attachments"],
  ])("C60: a link in place of %s is not followed; nothing is written", async (what, above) => {
    const receipt = receiptOf();
    const outside = join(root, "outside");
    await mkdir(outside);
    await mkdir(join(workspace, above), { recursive: true });
    const name = what === "the directory itself" ? receipt.relativeDirectory.split("/")[2]! : what;
    await symlink(outside, join(workspace, above, name));
    const { fetch, fetched } = fetching();
    const placing = place({ receipt, fetch });
    await expect(placing).rejects.toThrow(UnsafePath);
    await expect(placing).rejects.toThrow(name);
    expect(fetched).toEqual([]);
    expect(await readdir(outside)).toEqual([]);
  });

  test("C60: a directory swapped for a link while files are fetched steers nothing", async () => {
    const receipt = receiptOf();
    const outside = join(root, "outside");
    await mkdir(outside);
    const fetch = async (file: AttachmentFile) => {
      const path = join(workspace, ".openclaw");
      if ((await lstat(path)).isDirectory()) {
        await rename(path, join(root, "moved"));
        await symlink(outside, path);
      }
      return fetching().fetch(file);
    };
    await place({ receipt, fetch }).catch((error: unknown) => expect(error).toBeInstanceOf(UnsafePath));
    expect(await readdir(outside)).toEqual([]);
  });

  test("C60: a link in place of a file is not followed, before and after the files were put", async () => {
    const receipt = receiptOf();
    const target = join(root, "target");
    await writeFile(target, "mine");
    const directory = await place({ receipt });
    await rm(join(directory, "tides.csv"));
    await symlink(target, join(directory, "tides.csv"));
    await expect(place({ receipt })).rejects.toThrow("tides.csv");
    await rm(join(directory, ".manifest.json"));
    await expect(place({ receipt })).rejects.toThrow(UnsafePath);
    expect(await readFile(target, "utf8")).toBe("mine");
  });

  test("what the service sends must be what the receipt says; nothing of a refused placement stays", async () => {
    const other = fetching({ ...CONTENTS, "empty.txt": "not empty" });
    await expect(place({ fetch: other.fetch })).rejects.toThrow("empty.txt");
    expect(await readdir(join(workspace, ".openclaw/attachments"))).toEqual([]);
  });

  test("a service that goes away in the middle leaves nothing, and the next attempt puts everything", async () => {
    const receipt = receiptOf();
    const fetch = async (file: AttachmentFile) => {
      if (file.name === "empty.txt") throw new Error("away");
      return fetching().fetch(file);
    };
    await expect(place({ receipt, fetch })).rejects.toThrow("away");
    expect(await readdir(join(workspace, ".openclaw/attachments"))).toEqual([]);
    expect(await readdir(await place({ receipt }))).toHaveLength(3);
  });

  test("of two attempts at once, the one that fails takes nothing from the other", async () => {
    const receipt = receiptOf();
    const late = Promise.withResolvers<Uint8Array>();
    const slow = Promise.withResolvers<Uint8Array>();
    const fetchUntil = (last: PromiseWithResolvers<Uint8Array>) => {
      const reached = Promise.withResolvers<void>();
      const fetch = async (file: AttachmentFile) => {
        if (file.name !== "empty.txt") return fetching().fetch(file);
        reached.resolve();
        return last.promise;
      };
      return { fetch, reached: reached.promise };
    };
    const [one, other] = [fetchUntil(late), fetchUntil(slow)];
    const failing = place({ receipt, fetch: one.fetch });
    await one.reached;
    const placing = place({ receipt, fetch: other.fetch });
    await other.reached;
    late.reject(new Error("lease lost"));
    await expect(failing).rejects.toThrow("lease lost");
    slow.resolve(new Uint8Array());
    expect((await readdir(await placing)).sort()).toEqual([".manifest.json", "empty.txt", "tides.csv"]);
    expect(await readdir(join(workspace, ".openclaw/attachments"))).toHaveLength(1);
  });

  test("attempts that run at once all end with the whole directory, and none leaves another", async () => {
    const receipt = receiptOf();
    const [directory] = await Promise.all([place({ receipt }), place({ receipt }), place({ receipt })]);
    expect(await readdir(directory!)).toHaveLength(3);
    expect(await readdir(join(workspace, ".openclaw/attachments"))).toHaveLength(1);
  });

  test("a later run puts missing files again and leaves the agent's changes alone", async () => {
    const receipt = receiptOf();
    const directory = await place({ receipt });
    await writeFile(join(directory, "tides.csv"), "changed");
    await rm(join(directory, "empty.txt"));
    const { fetch, fetched } = fetching();
    await place({ receipt, fetch });
    expect(fetched).toEqual(["empty.txt"]);
    expect(await readFile(join(directory, "tides.csv"), "utf8")).toBe("changed");
    expect(await readdir(directory)).toHaveLength(3);
  });

  test("without a manifest, what has a file's name must have its content", async () => {
    const receipt = receiptOf();
    const directory = join(workspace, receipt.relativeDirectory);
    await mkdir(directory, { recursive: true, mode: 0o755 });
    await writeFile(join(directory, "tides.csv"), CONTENTS["tides.csv"]!);
    const { fetch, fetched } = fetching();
    await place({ receipt, fetch });
    expect(fetched).toEqual(["empty.txt"]);
    expect(await modeOf(directory)).toBe("700");
    await rm(join(directory, ".manifest.json"));
    await writeFile(join(directory, "tides.csv"), "somebody's own text");
    await expect(place({ receipt })).rejects.toThrow("another content");
    expect(await readFile(join(directory, "tides.csv"), "utf8")).toBe("somebody's own text");
  });

  test.each(["", ".", "..", "a/b", "a\\b", "a\0b", "a\nb", ".manifest.json", ".Manifest.JSON", "ü".repeat(128)])(
    "the name %j is refused whatever the service says",
    async (name) => {
      const { fetch, fetched } = fetching();
      await expect(place({ receipt: receiptOf({ [name]: "x" }), fetch })).rejects.toThrow(UnsafePath);
      expect(fetched).toEqual([]);
      await expect(lstat(workspace)).rejects.toThrow("ENOENT");
    },
  );

  test.each([
    "",
    "attachments",
    "../.openclaw/attachments/x",
    `.openclaw/attachments/../${randomUUID()}`,
    `/${randomUUID()}`,
  ])("the directory %j is refused", async (relativeDirectory) => {
    await expect(place({ receipt: { ...receiptOf(), relativeDirectory } })).rejects.toThrow(UnsafePath);
  });

  describe("cleaning", () => {
    const warnings: string[] = [];
    const log = { info: () => {}, warn: (_facts: object, message: string) => warnings.push(message) };
    const cleaning = (isDeleted: boolean) => ({ isDeleted: async () => isDeleted, log });
    const clean = async (isDeleted = true) =>
      (await cleanWorkspace(workspace, cleaning(isDeleted), byDescriptor)).cleaned;
    beforeEach(() => warnings.splice(0));

    test("removes files, manifest and directory of a deleted session, and leaves those of others", async () => {
      const directory = await place();
      expect(await cleanWorkspace(workspace, cleaning(false), byDescriptor)).toEqual({ cleaned: 0, left: true });
      expect(await readdir(directory)).toHaveLength(3);
      expect(await cleanWorkspace(workspace, cleaning(true), byDescriptor)).toEqual({ cleaned: 1, left: false });
      expect(await readdir(join(workspace, ".openclaw/attachments"))).toEqual([]);
      expect(await clean()).toBe(0);
      expect(warnings).toEqual([]);
    });

    test("removes what a host that was killed in the middle had put", async () => {
      const reached = Promise.withResolvers<void>();
      const killed = Promise.withResolvers<never>();
      const fetch = async (file: AttachmentFile) => {
        if (file.name !== "empty.txt") return fetching().fetch(file);
        reached.resolve();
        return killed.promise;
      };
      const placing = place({ fetch });
      await reached.promise;
      const attachments = join(workspace, ".openclaw/attachments");
      const [partial] = await readdir(attachments);
      expect((await readdir(join(attachments, partial!))).sort()).toEqual([".manifest.json", "tides.csv"]);
      expect(await clean(false)).toBe(0);
      expect(await clean()).toBe(1);
      expect(await readdir(attachments)).toEqual([]);
      killed.reject(new Error("killed"));
      await expect(placing).rejects.toThrow("killed");
    });

    test("C60: a directory swapped for a link is not followed", async () => {
      const directory = await place();
      await rename(directory, join(root, "moved"));
      await symlink(join(root, "moved"), directory);
      expect(await clean()).toBe(0);
      expect(await readdir(join(root, "moved"))).toHaveLength(3);
      expect(warnings).toHaveLength(1);
    });

    test("C60: links in place of directories above, and of files, lead nowhere", async () => {
      const directory = await place();
      await writeFile(join(root, "precious"), "mine");
      await rm(join(directory, "tides.csv"));
      await symlink(join(root, "precious"), join(directory, "tides.csv"));
      await rename(join(workspace, ".openclaw"), join(root, "moved"));
      await symlink(join(root, "moved"), join(workspace, ".openclaw"));
      expect(await clean()).toBe(0);
      await rm(join(workspace, ".openclaw"));
      await rename(join(root, "moved"), join(workspace, ".openclaw"));
      expect(await clean()).toBe(1);
      expect(await readFile(join(root, "precious"), "utf8")).toBe("mine");
    });

    test("C60: a path in a manifest is no name: such a manifest removes nothing", async () => {
      const directory = await place();
      const manifest = JSON.parse(await readFile(join(directory, ".manifest.json"), "utf8"));
      await writeFile(join(root, "precious"), "mine");
      manifest.files[0].name = "../../../../precious";
      await writeFile(join(directory, ".manifest.json"), JSON.stringify(manifest));
      expect(await clean()).toBe(0);
      expect(await readFile(join(root, "precious"), "utf8")).toBe("mine");
      expect(await readdir(directory)).toHaveLength(3);
    });

    test("what an agent put there stays", async () => {
      const directory = await place();
      await writeFile(join(directory, "draft.txt"), "the agent's");
      await mkdir(join(directory, "notes"));
      expect(await clean()).toBe(1);
      expect((await readdir(directory)).sort()).toEqual(["draft.txt", "notes"]);
      expect(warnings).toEqual(["files of an agent stay where attachments were"]);
    });

    test("a workspace without files, or without a directory, is clean", async () => {
      expect(await clean()).toBe(0);
      await mkdir(workspace);
      expect(await clean()).toBe(0);
      expect(warnings).toEqual([]);
    });
  });
});

test.skipIf(process.geteuid?.() !== 0)("C60: a directory of another user is refused", async () => {
  const { chown } = await import("node:fs/promises");
  await mkdir(join(workspace, ".openclaw"), { recursive: true });
  await chown(join(workspace, ".openclaw"), 1, 1);
  await chmod(join(workspace, ".openclaw"), 0o777);
  await expect(placeFiles(placement())).rejects.toThrow("another user");
});
