import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { link, mkdir, mkdtemp, rm, symlink, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { readOutputFile } from "../../../src/host/attachments/read-output-file.ts";
import { HostError } from "../../../src/host/index.ts";
import { closeAfterFile } from "../../support/close-after-file.ts";

let root: string;
let workspace: string;
let sibling: string;
let attachments: string;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), "agentsessions-test-output-"));
  closeAfterFile(() => rm(root, { recursive: true, force: true }));
  workspace = join(root, "one");
  sibling = join(root, "one-two");
  attachments = `.openclaw/attachments/${randomUUID()}`;
  await mkdir(join(workspace, "out"), { recursive: true });
  await mkdir(join(workspace, attachments), { recursive: true });
  await mkdir(sibling);
  await writeFile(join(sibling, "secret.txt"), "the sibling's");
  await writeFile(join(workspace, "out/report.txt"), "all is well");
});

describe.each([
  ["by descriptor", true],
  ["by path", false],
])("%s", (_way, byDescriptor) => {
  const read = (path: string) => readOutputFile({ workspace, attachments }, path, byDescriptor);

  test.each([
    ["relative", () => "out/report.txt"],
    ["absolute", () => join(workspace, "out/report.txt")],
    ["with detours inside", () => "./out/../out//report.txt"],
  ])("a file of the workspace is read by its path: %s", async (_kind, path) => {
    const { name, data } = await read(path());
    expect({ name, text: Buffer.from(data).toString() }).toEqual({ name: "report.txt", text: "all is well" });
  });

  test("also through a link that leads to the workspace itself, and from the run's own attachments", async () => {
    await symlink(workspace, join(root, "alias"));
    await writeFile(join(workspace, attachments, "edited.txt"), "mine");
    const aliased = { workspace: join(root, "alias"), attachments };
    const { data } = await readOutputFile(aliased, join(workspace, "out/report.txt"), byDescriptor);
    expect(Buffer.from(data).toString()).toBe("all is well");
    expect((await read(`${attachments}/edited.txt`)).name).toBe("edited.txt");
  });

  test.each<[string, () => string]>([
    ["outside", () => join(sibling, "secret.txt")],
    ["outside by ..", () => "../one-two/secret.txt"],
    ["outside by .. further down", () => "out/../../one-two/secret.txt"],
    ["the workspace itself", () => "."],
    ["empty", () => ""],
    ["with NUL", () => "out/report.txt\0"],
  ])("C62: a path %s is refused", async (_kind, path) => {
    const reading = read(path());
    await expect(reading).rejects.toThrow(HostError);
    await expect(reading).rejects.toMatchObject({ code: "invalid_request", retryable: false });
    await expect(reading).rejects.toThrow("outside of the workspace");
  });

  test("C62: no link is followed, on no component, symbolic or hard", async () => {
    await symlink(join(sibling, "secret.txt"), join(workspace, "out/link.txt"));
    await symlink(sibling, join(workspace, "linked"));
    await writeFile(join(sibling, "other.txt"), "the sibling's");
    await link(join(sibling, "other.txt"), join(workspace, "out/hard.txt"));
    await expect(read("out/link.txt")).rejects.toThrow("is a link");
    await expect(read("linked/secret.txt")).rejects.toThrow("is a link");
    await expect(read("out/hard.txt")).rejects.toThrow("hard link");
  });

  test("C62: attachments of another session are refused, also in a workspace that both have", async () => {
    const other = `.openclaw/attachments/${randomUUID()}`;
    await mkdir(join(workspace, other));
    await writeFile(join(workspace, other, "secret.txt"), "the sibling's");
    await expect(read(`${other}/secret.txt`)).rejects.toThrow("belongs to another session");
    await expect(read(`${other.toUpperCase()}/secret.txt`)).rejects.toThrow("belongs to another session");
  });

  test("what is no regular file of at most 32 MiB is refused; a pipe does not hold up", async () => {
    execFileSync("mkfifo", [join(workspace, "pipe")]);
    await writeFile(join(workspace, "large"), "");
    await truncate(join(workspace, "large"), 32 * 1024 * 1024 + 1);
    await expect(read("out")).rejects.toThrow("no regular file");
    await expect(read("pipe")).rejects.toThrow("no regular file");
    await expect(read("large")).rejects.toThrow("33554433 bytes");
    await expect(read("out/missing.txt")).rejects.toThrow("does not exist");
    await expect(read("missing/report.txt")).rejects.toThrow("does not exist");
    await expect(read("out/report.txt/x")).rejects.toThrow(HostError);
  });
});
