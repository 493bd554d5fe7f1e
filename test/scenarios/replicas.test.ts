import { randomUUID } from "node:crypto";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { createClient, type Transport } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { type ClaimedRun, HostService, Role, RunService, SessionService } from "../../src/client/index.ts";
import { parseConfig } from "../../src/config/schema.ts";
import { Random } from "../chaos/random.ts";
import { testApp } from "../support/app.ts";
import { testServer, transportTo } from "../support/server.ts";

const agentIds = ["ember", "finch", "heron", "lark"];
const config = parseConfig({
  server: { drainNoticeMs: 0, drainGraceSeconds: 1 },
  agents: { list: agentIds.map((id) => ({ id })) },
});
const messagesPerSession = 5;

/** Sends every call to a replica drawn anew. */
function routed(transports: readonly Transport[], random: Random): Transport {
  const anyOne = () => random.pick(transports);
  return {
    unary: (...call) => anyOne().unary(...call),
    stream: (...call) => anyOne().stream(...call),
  };
}

async function openReplicas() {
  const first = await testServer({ app: await testApp({ config }) });
  const second = await first.startReplica();
  const transport = routed([transportTo(first.url), transportTo(second.url)], new Random("any replica"));
  return {
    sessions: createClient(SessionService, transport),
    runs: createClient(RunService, transport),
    hosts: createClient(HostService, transport),
  };
}

type Replicas = Awaited<ReturnType<typeof openReplicas>>;

/** A host of which no two calls need go to the same replica. Echoes in two pieces; sends every report twice. */
class EchoHost {
  readonly #hosts: Replicas["hosts"];
  readonly #identity: { readonly hostId: string; readonly instanceId: string };

  constructor({ hosts }: Replicas, hostId: string) {
    this.#hosts = hosts;
    this.#identity = { hostId, instanceId: randomUUID() };
  }

  async work(stop: AbortSignal): Promise<void> {
    while (!stop.aborted) {
      const claim = {
        ...this.#identity,
        requestId: randomUUID(),
        agentIds,
        maxRuns: 2,
        waitTimeout: durationFromMs(200),
      };
      const { runs } = await this.#hosts.claimRuns(claim);
      const again = runs.length > 0 ? await this.#hosts.claimRuns(claim) : { runs };
      expect(again.runs.map(({ leaseToken }) => leaseToken)).toEqual(runs.map(({ leaseToken }) => leaseToken));
      await Promise.all(runs.map((claimed) => this.#answer(claimed)));
    }
  }

  async #answer({ run, leaseToken, input }: ClaimedRun): Promise<void> {
    const lease = { runId: run!.runId, leaseToken };
    const content = input!.messages[0]!.parts[0]!.content;
    const text = `echo ${content.case === "text" ? content.value.text : ""}`;
    await this.#hosts.heartbeatRuns({ ...this.#identity, items: [lease] });
    const messageId = randomUUID();
    for (const [place, piece] of [text.slice(0, 4), text.slice(4)].entries()) {
      const value = { messageId, offset: BigInt(place * 4), text: piece };
      const append = {
        ...lease,
        firstClientSequence: BigInt(place + 1),
        events: [{ event: { case: "textDelta" as const, value } }],
      };
      await this.#hosts.appendRunEvents(append);
      await this.#hosts.appendRunEvents(append);
    }
    const parts = [{ content: { case: "text" as const, value: { text } } }];
    const completion = {
      ...lease,
      finalClientSequence: 2n,
      message: { messageId, role: Role.ASSISTANT, parts },
    } as const;
    await this.#hosts.completeRun(completion);
    const { run: ended } = await this.#hosts.completeRun(completion);
    expect(ended?.reply).toBe(text);
  }
}

/** Follows a run from stream to stream, three frames at each. */
async function watchInPieces({ runs }: Replicas, runId: string): Promise<{ sequences: bigint[]; text: string }> {
  const sequences: bigint[] = [];
  let text = "";
  for (;;) {
    let frames = 0;
    for await (const { frame } of runs.watchRun({ runId, afterSequence: sequences.at(-1) ?? 0n })) {
      if (frame.case === "end") return { sequences, text };
      if (frame.case !== "event") continue;
      sequences.push(frame.value.sequence);
      if (frame.value.event.case === "textDelta") text += frame.value.event.value.text;
      if (++frames === 3) break;
    }
  }
}

/** Sends twice at once, then waits by repeating the request. */
async function converse(replicas: Replicas, session: string): Promise<string[]> {
  const runIds: string[] = [];
  for (let n = 0; n < messagesPerSession; n++) {
    const request = { requestId: randomUUID(), session, message: `${session} ${n}` };
    const send = (waitMs: number) => replicas.sessions.sendMessage({ ...request, waitTimeout: durationFromMs(waitMs) });
    const twins = await Promise.all([send(0), send(0)]);
    expect(new Set(twins.map(({ run }) => run!.runId)).size).toBe(1);
    expect(twins.map(({ deduplicated }) => deduplicated).sort()).toEqual([false, true]);
    const runId = twins[0]!.run!.runId;
    const [answer, watched] = await Promise.all([send(10_000), watchInPieces(replicas, runId)]);
    expect(answer).toMatchObject({ reply: `echo ${request.message}`, deduplicated: true });
    expect(watched.text).toBe(answer.reply);
    expect(watched.sequences).toEqual(watched.sequences.map((_, place) => BigInt(place + 1)));
    runIds.push(runId);
  }
  return runIds;
}

async function readTranscript({ sessions }: Replicas, session: string): Promise<string[]> {
  const texts: string[] = [];
  let pageToken = "";
  do {
    const page = await sessions.listMessages({ session, pageSize: 3, pageToken });
    const onPage = page.messages.map(({ parts }) =>
      parts.map(({ content }) => (content.case === "text" ? content.value.text : "")),
    );
    texts.unshift(...onPage.map((part) => part.join("")));
    pageToken = page.olderPageToken;
  } while (pageToken !== "");
  return texts;
}

test("C173: whichever replica gets which call, everything happens once and in order", async () => {
  const replicas = await openReplicas();
  const stop = new AbortController();
  const hosts = ["one", "two"].map((hostId) => new EchoHost(replicas, hostId).work(stop.signal));
  const keys = agentIds.map((agentId) => `agent:${agentId}:main`);
  const runIds = await Promise.all(keys.map((session) => converse(replicas, session)));
  stop.abort();
  await Promise.all(hosts);
  for (const [place, session] of keys.entries()) {
    const said = runIds[place]!.flatMap((_, n) => [`${session} ${n}`, `echo ${session} ${n}`]);
    expect(await readTranscript(replicas, session)).toEqual(said);
    const { runs } = await replicas.runs.listRuns({ session });
    expect(runs.map(({ runId, attempt }) => [runId, attempt])).toEqual(
      runIds[place]!.toReversed().map((id) => [id, 1]),
    );
  }
});
