import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import {
  type AttachmentFile,
  type Exchange,
  Exchange_AnnounceOutcome,
  Exchange_Phase,
  type OutgoingFile,
  type Run,
  RunState,
  SpawnMode,
} from "../../client/index.ts";
import type { Turn } from "../../host/index.ts";
import type { Stage, Story } from "./story.ts";
import { openTerminal, type Terminal } from "./terminal.ts";

const SUMMARY = "3 piers, highest water 21:40 at pier 3";
const TIME_LIMIT_MS = 3_000;
const TRIES = 400;
const ANSWER = "Two of three are back; the harbour log took too long.";

/** What quill spawns, the one that will not make it last. */
const TASKS: readonly { readonly label: string; readonly task: string; readonly file: OutgoingFile }[] = [
  {
    label: "tides",
    task: "Sum up the tides.",
    file: { name: "tides.csv", text: "pier,high\n1,20:10\n2,20:55\n3,21:40\n", mimeType: "text/csv" },
  },
  {
    label: "storms",
    task: "Look for storms. Speak up only if there is one.",
    file: { name: "sky.txt", text: "clear\n" },
  },
  {
    label: "log",
    task: "Read the harbour log.",
    file: { name: "log.txt", text: "06:12 Otter in, 07:40 Lark out\n" },
  },
];

/** One agent spawns three sub-agents with files, and its person hears of each as it should be. */
export const spawnStory: Story = {
  name: "spawn",
  summary: "quill spawns three sub-agents with files: one times out, one gives a file back, one has nothing to say",
  async run(stage: Stage) {
    const quill = new Quill(stage);
    await stage.startHost({
      hostId: "spawn-story",
      agents: { quill: (turn) => quill.answer(turn) },
      workspace: ({ sessionId }) => join(stage.directory, sessionId),
    });
    const terminal = openTerminal(stage, { connectorId: "spawn-story-terminal", person: "ann", agentId: "quill" });
    try {
      const session = await terminal.type("How is the harbour?");
      const answered = await terminal.shows(ANSWER);
      if (quill.failure !== undefined) throw quill.failure;
      stage.check(answered, "quill answers in the terminal");
      await checkAnnounces(stage, terminal);
      await checkSilence(stage, terminal, quill.runs);
      await tellChildren(stage, session);
      await checkFileBack(stage, quill.runs);
    } finally {
      await terminal.close();
    }
  },
};

/** The agent, as parent and as each of its sub-agents. */
class Quill {
  /** Of its sub-agents, once they have ended. */
  runs: readonly Run[] = [];
  /** Why a turn failed, other than by its time limit: a check that did not hold. */
  failure: unknown;
  readonly #stage: Stage;
  /** By key of the sub-agent. */
  readonly #labels = new Map<string, string>();

  constructor(stage: Stage) {
    this.#stage = stage;
  }

  async answer(turn: Turn): Promise<string> {
    try {
      return await this.#answer(turn);
    } catch (error) {
      if (!turn.signal.aborted) this.failure ??= error;
      throw error;
    }
  }

  async #answer(turn: Turn): Promise<string> {
    const { sessionKey, exchangeStep } = turn.run;
    if (!sessionKey.includes(":subagent:")) return this.#spawnAll(turn);
    const label = TASKS.find(({ task }) => task === turn.text)?.label;
    if (label !== undefined) this.#labels.set(sessionKey, label);
    return exchangeStep === "announce" ? announceOf(this.#labels.get(sessionKey)) : this.#work(turn, label);
  }

  async #spawnAll({ sessions }: Turn): Promise<string> {
    const stage: Stage = this.#stage;
    const { tell } = stage;
    const runIds: string[] = [];
    for (const { label, task, file } of TASKS) {
      const runTimeoutMs = label === "log" ? TIME_LIMIT_MS : 60_000;
      const spawned = await sessions.spawnSession({ task, label, attachments: [file], runTimeoutMs });
      const [stored] = spawned.attachments!.files;
      tell(`[quill] spawns "${label}": ${describeFile(stored!)} in ${spawned.attachments!.relativeDirectory}`);
      stage.check(stored?.sha256 === sha256(file.text!), "the receipt has the hash of what was given");
      stage.check(spawned.mode === SpawnMode.RUN, "a sub-agent without a thread is there for one run");
      runIds.push(spawned.run!.runId);
    }
    const part = await sessions.waitRuns(runIds, { timeoutMs: 1_500 });
    tell(`[quill] after 1.5 s ${part.endedCount} of 3 have ended: ${describeStates(part.runs)}`);
    stage.check(!part.ended && part.runs.length === 3, "running out of time shows every run as it is by then");
    const whole = await sessions.waitRuns(runIds);
    this.runs = whole.runs;
    tell(`[quill] then all have: ${describeStates(whole.runs)}`);
    stage.check(whole.endedCount === 3 && whole.runs[2]?.state === RunState.TIMED_OUT, "one of them timed out");
    return ANSWER;
  }

  async #work(turn: Turn, label: string | undefined): Promise<string> {
    const [file] = turn.attachments.files;
    const text = await readFile(file!.path!, "utf8");
    this.#stage.check(sha256(text) === file?.sha256, "the file in the workspace is the one that was given");
    if (label === "log") return sleep(60_000, "never", { signal: turn.signal });
    if (label === "storms") return "Clear sky.";
    await turn.attach({ name: "summary.txt", text: SUMMARY, mimeType: "text/plain" });
    return "The summary is in summary.txt.";
  }
}

function announceOf(label: string | undefined): string {
  switch (label) {
    case "log":
      return "I did not get through the harbour log.";
    case "tides":
      return `The tides are summed up: ${SUMMARY}.`;
    default:
      return "ANNOUNCE_SKIP";
  }
}

async function checkAnnounces(stage: Stage, terminal: Terminal): Promise<void> {
  const timedOut = await terminal.shows("Status: timed out", "I did not get through", "Stats:");
  stage.check(timedOut, "the one that timed out is announced as such");
  const completed = await terminal.shows("Status: completed", SUMMARY, "summary.txt", "Stats:");
  stage.check(completed, "the one that gave a file back is announced with it");
}

/** Nothing is pending any more for the one that had nothing to say, and nothing was shown. */
async function checkSilence(stage: Stage, { lines }: Terminal, runs: readonly Run[]): Promise<void> {
  const { phase, announceOutcome } = await untilClosed(stage, runs[1]!.exchangeId);
  stage.tell(`The announce of "storms": ${Exchange_AnnounceOutcome[announceOutcome]}, since it said ANNOUNCE_SKIP`);
  const silent = phase === Exchange_Phase.CLOSED && announceOutcome === Exchange_AnnounceOutcome.SKIPPED;
  stage.check(silent && lines.length === 3, "ANNOUNCE_SKIP stays silent");
}

async function untilClosed({ client }: Stage, exchangeId: string): Promise<Exchange> {
  for (let n = 0; ; n++) {
    const { exchange } = await client.runs.getExchange({ exchangeId });
    if (exchange!.phase === Exchange_Phase.CLOSED || n === TRIES) return exchange!;
    await sleep(50);
  }
}

async function tellChildren(stage: Stage, parent: string): Promise<void> {
  const { client, tell } = stage;
  tell(`What ${parent} has spawned:`);
  const { sessions } = await client.sessions.listSessions({ parent });
  for (const { label, sessionKey, messageCount } of sessions) {
    tell(`  ${label.padEnd(6)} ${sessionKey}, ${messageCount} messages`);
  }
  stage.check(sessions.length === TASKS.length, "there are three");
}

async function checkFileBack(stage: Stage, runs: readonly Run[]): Promise<void> {
  const { client, tell } = stage;
  const back = runs.flatMap(({ outputAttachments }) => outputAttachments);
  stage.check(back.length === 1, "one file came back");
  const { file, data } = await client.readAttachment(back[0]!.attachmentId);
  const text = Buffer.from(data).toString();
  tell(`The file that came back: ${describeFile(file)}: "${text}"`);
  stage.check(text === SUMMARY && file.sha256 === sha256(text), "it is the summary, and its hash is right");
}

function describeFile({ name, bytes, sha256 }: AttachmentFile): string {
  return `${name}, ${bytes} bytes, sha256 ${sha256.slice(0, 12)}…`;
}

function describeStates(runs: readonly Run[]): string {
  return runs.map(({ state }, index) => `${TASKS[index]!.label} ${RunState[state]}`).join(", ");
}

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
