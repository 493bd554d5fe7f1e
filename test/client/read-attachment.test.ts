import { createHash, randomUUID } from "node:crypto";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { expect, test } from "vitest";
import {
  type AgentSessions,
  AttachmentDamaged,
  createAgentSessions,
  type ReadAttachmentRequest,
  type ReadAttachmentResponseSchema,
  SessionService,
  type SpawnSessionRequest,
} from "../../src/client/index.ts";
import { fakeService } from "../support/fake-service.ts";

const ATTACHMENT_ID = randomUUID();
type FrameInit = MessageInitShape<typeof ReadAttachmentResponseSchema>;
type Stream = (request: ReadAttachmentRequest) => AsyncGenerator<FrameInit>;

function fileOf(content: string, sha256 = createHash("sha256").update(content).digest("hex")): FrameInit {
  const value = { attachmentId: ATTACHMENT_ID, name: "tides.csv", bytes: BigInt(content.length), sha256 };
  return { frame: { case: "file", value } };
}

function data(text: string): FrameInit {
  return { frame: { case: "data", value: Buffer.from(text) } };
}

/** A service whose n-th read is the n-th stream. */
async function serving(...streams: Stream[]): Promise<{ client: AgentSessions; offsets: bigint[] }> {
  const offsets: bigint[] = [];
  const { baseUrl } = await fakeService((router) =>
    router.service(SessionService, {
      async *readAttachment(request) {
        offsets.push(request.offset);
        const stream = streams[offsets.length - 1];
        if (!stream) throw new ConnectError("no more", Code.Unavailable);
        yield* stream(request);
      },
    }),
  );
  return { client: createAgentSessions({ baseUrl }), offsets };
}

test("a file comes in pieces, across cuts of every kind, each byte once", async () => {
  const { client, offsets } = await serving(
    () => {
      throw new ConnectError("away", Code.Unavailable);
    },
    async function* () {
      yield fileOf("abcdef");
      yield data("ab");
      throw new ConnectError("broken", Code.Internal);
    },
    async function* () {
      yield fileOf("abcdef");
      yield data("cd");
    },
    async function* () {
      yield fileOf("abcdef");
      yield data("ef");
    },
  );
  const read = await client.readAttachment(ATTACHMENT_ID);
  expect(Buffer.from(read.data).toString()).toBe("abcdef");
  expect(read.file).toMatchObject({ attachmentId: ATTACHMENT_ID, name: "tides.csv", bytes: 6n });
  expect(offsets).toEqual([0n, 0n, 2n, 4n]);
});

test("an empty file is read", async () => {
  const { client } = await serving(async function* () {
    yield fileOf("");
  });
  expect((await client.readAttachment(ATTACHMENT_ID)).data).toHaveLength(0);
});

test.each<[string, string, Stream]>([
  [
    "another content",
    "its sha256 is",
    async function* () {
      yield fileOf("abc");
      yield data("abd");
    },
  ],
  [
    "more than the file has",
    "more came than the 3 bytes",
    async function* () {
      yield fileOf("abc");
      yield data("abcd");
    },
  ],
])("%s is told, and not asked for again", async (_what, message, stream) => {
  const { client, offsets } = await serving(stream);
  const read = client.readAttachment(ATTACHMENT_ID);
  await expect(read).rejects.toThrow(AttachmentDamaged);
  await expect(read).rejects.toThrow(message);
  expect(offsets).toEqual([0n]);
});

test("a file that is another one after a cut is told", async () => {
  const { client } = await serving(
    async function* () {
      yield fileOf("abc");
      yield data("a");
    },
    async function* () {
      yield fileOf("xbc");
      yield data("bc");
    },
  );
  await expect(client.readAttachment(ATTACHMENT_ID)).rejects.toThrow("it changed while it was read");
});

test("a refusal is thrown as it is; a service that sends nothing is given up after the budget", async () => {
  const { client, offsets } = await serving(() => {
    throw new ConnectError("none", Code.NotFound);
  });
  await expect(client.readAttachment(ATTACHMENT_ID)).rejects.toMatchObject({ code: Code.NotFound });
  expect(offsets).toHaveLength(1);
  const silent = async function* () {
    yield fileOf("abc");
  };
  const { client: other } = await serving(...Array<Stream>(50).fill(silent));
  await expect(other.readAttachment(ATTACHMENT_ID, { budgetMs: 500 })).rejects.toMatchObject({
    code: Code.Unavailable,
  });
});

test("a spawn is asked for again under the same request id, with its files", async () => {
  const requests: SpawnSessionRequest[] = [];
  const { baseUrl } = await fakeService((router) =>
    router.service(SessionService, {
      spawnSession: (request) => {
        requests.push(request);
        if (requests.length === 1) throw new ConnectError("away", Code.Unavailable);
        return { childSessionKey: "agent:otter:subagent:1" };
      },
    }),
  );
  const client = createAgentSessions({ baseUrl });
  const spawned = await client.spawnSession({
    task: "count",
    runTimeoutMs: 1_500,
    attachments: [{ name: "a.txt", text: "a" }, { name: "b.bin", data: Buffer.from([1, 2]) }, { name: "c" }],
  });
  expect(spawned.childSessionKey).toBe("agent:otter:subagent:1");
  expect(requests).toHaveLength(2);
  expect(requests[1]).toEqual(requests[0]);
  expect(requests[0]?.runTimeout).toMatchObject({ seconds: 1n, nanos: 500_000_000 });
  expect(requests[0]?.attachments.map(({ name, content }) => [name, content.case, content.value?.length])).toEqual([
    ["a.txt", "text", 1],
    ["b.bin", "data", 2],
    ["c", "data", 0],
  ]);
  const both = client.spawnSession({ task: "x", attachments: [{ name: "d", text: "", data: Buffer.alloc(0) }] });
  await expect(both).rejects.toThrow("not both");
});
