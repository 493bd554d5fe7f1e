import { setTimeout as sleep } from "node:timers/promises";
import {
  type Message,
  Provenance_Kind as ProvenanceKind,
  Role,
  type Run,
  RunState,
  SendOutcome,
} from "../../client/index.ts";
import type { Turn, TurnPart } from "../../host/index.ts";
import type { Stage, Story } from "./story.ts";

const NOVA = "agent:nova:main";
const OTTER = "agent:otter:main";
const QUESTION = "What is the tide at the pier tonight?";
const FORECAST = "High water at 21:40, two metres ten, wind from the west.";

/** One agent asks another and waits for the answer, while a person watches both. */
export const sendStory: Story = {
  name: "send",
  summary:
    "a person asks nova, nova asks otter through the session tools and waits, and the runs are watched as they stream",
  async run(stage: Stage) {
    const { client, tell } = stage;
    tell("Two agents come up, nova and otter: scripts of a few lines, no model and no key.");
    await stage.startHost({ hostId: "send-story", agents: { nova, otter } });
    tell(`A person writes to nova: "${QUESTION}"`);
    const sent = await client.sendMessage({ session: NOVA, message: QUESTION, waitMs: 0 });
    stage.check(
      sent.outcome === SendOutcome.ACCEPTED && sent.run !== undefined,
      "the message is stored before anyone waits",
    );
    const ended = await watchAloud(stage, sent.run.runId, "nova");
    stage.check(ended.state === RunState.COMPLETED, "nova's run completes");
    stage.check(ended.reply === `otter says: ${FORECAST}`, "nova's reply holds otter's answer");
    await awaitQuiet(stage);
    await listAloud(stage);
    await readAloud(stage);
  },
};

/** Asks otter and passes the answer on. The answer also comes back as a turn of the exchange, to which it has nothing to add. */
async function nova(turn: Turn): Promise<string> {
  if (turn.run.exchangeStep.startsWith("ping_pong")) return "REPLY_SKIP";
  await turn.say("Let me ask otter.");
  const call = { toolCallId: "call-1", name: "sessions_send", arguments: { sessionKey: OTTER, message: turn.text } };
  const parts: TurnPart[] = [
    { content: { case: "text", value: { text: "Let me ask otter." } } },
    { content: { case: "toolCall", value: call } },
  ];
  await turn.addMessage({ role: "assistant", parts, stopReason: "toolUse" });
  await turn.toolCall(call);
  const { reply } = await turn.sessions.sendMessage({ session: OTTER, message: turn.text, waitMs: 20_000 });
  const { toolCallId, name: toolName } = call;
  await turn.toolResult({ toolCallId, name: toolName, text: reply });
  await turn.addMessage({ role: "tool_result", text: reply, toolCallId, toolName });
  return `otter says: ${reply}`;
}

/** Says its forecast word by word, as a model would. */
async function otter(turn: Turn): Promise<void> {
  for (const word of FORECAST.split(/(?<= )/)) {
    await turn.say(word);
    await sleep(80, undefined, { signal: turn.signal });
  }
}

/** Watches a run and tells what happens; follows a sessions_send into the run it started. */
async function watchAloud(stage: Stage, runId: string, name: string): Promise<Run> {
  let deltas = 0;
  for await (const frame of stage.client.watchRun(runId, { afterSequence: 0 })) {
    if (frame.type === "end" && frame.run) {
      stage.tell(`  [${name}] ${RunState[frame.run.state]}, ${deltas} pieces streamed: "${frame.run.reply}"`);
      stage.check(deltas > 0, `${name} was seen streaming`);
      return frame.run;
    }
    if (frame.type !== "event") continue;
    const { case: what, value } = frame.event.event;
    if (what === "stateChange" && value.state === RunState.RUNNING)
      stage.tell(`  [${name}] RUNNING on ${value.hostId}`);
    if (what === "textDelta") {
      stage.tellPart(deltas++ === 0 ? `  [${name}] ${value.text}` : value.text);
    }
    if (what === "toolCall") {
      stage.tell(`  [${name}] ${value.name} ${JSON.stringify(value.arguments)}, and waits`);
      await watchAsked(stage);
    }
  }
  throw new Error(`the watch of ${name}'s run ended without its end`);
}

async function watchAsked(stage: Stage): Promise<void> {
  const asked = await findRunFrom(stage, NOVA);
  stage.check(
    asked.provenance?.kind === ProvenanceKind.INTER_SESSION,
    "otter's input says that it comes from a session",
  );
  const ended = await watchAloud(stage, asked.runId, "otter");
  stage.check(ended.reply === FORECAST, "otter's reply is what it streamed");
}

/** The run a session has started elsewhere; it may be a moment away. */
async function findRunFrom({ client }: Stage, sourceSession: string): Promise<Run> {
  for (let tries = 0; tries < 100; tries++) {
    const { runs } = await client.runs.listRuns({ sourceSession, pageSize: 1 });
    if (runs[0]) return runs[0];
    await sleep(50);
  }
  throw new Error(`${sourceSession} started no run`);
}

/** What follows a send goes on after its answer: nothing is told of transcripts that still grow. */
async function awaitQuiet({ client }: Stage): Promise<void> {
  for (let tries = 0; tries < 200; tries++) {
    const { exchanges } = await client.runs.listExchanges({ requester: NOVA, openOnly: true });
    if (exchanges.length === 0) return;
    await sleep(50);
  }
  throw new Error(`an exchange of ${NOVA} does not end`);
}

async function listAloud(stage: Stage): Promise<void> {
  stage.tell("The sessions now:");
  const keys: string[] = [];
  for (const agentId of ["nova", "otter"]) {
    for await (const session of stage.client.eachSession({ agentId })) {
      keys.push(session.sessionKey);
      stage.tell(`  ${session.sessionKey}, ${session.messageCount} messages`);
    }
  }
  stage.check(keys.join() === `${NOVA},${OTTER}`, "both main sessions exist, and no others of these agents");
}

async function readAloud(stage: Stage): Promise<void> {
  const asking = await readHistory(stage, NOVA);
  stage.check(
    asking.length === 5,
    "nova's transcript holds question, tool call, tool result and answer, and that it ended the exchange",
  );
  const asked = await readHistory(stage, OTTER);
  stage.check(asked.length === 2, "otter's transcript holds the question and the answer");
  stage.check(asked[0]?.provenance?.sourceSessionKey === NOVA, "the question names the session that asked");
}

async function readHistory({ client, tell }: Stage, session: string): Promise<Message[]> {
  tell(`The history of ${session}:`);
  const { messages } = await client.sessions.listMessages({ session, includeToolResults: true });
  for (const message of messages) tell(`  ${describeMessage(message)}`);
  return messages;
}

function describeMessage({ role, parts, provenance }: Message): string {
  const from = provenance?.sourceSessionKey ? ` from ${provenance.sourceSessionKey} by ${provenance.sourceTool}` : "";
  const content = parts.map(({ content: { case: kind, value } }) =>
    kind === "text" ? value.text : kind === "toolCall" ? `[${value.name}]` : `[${kind}]`,
  );
  return `${Role[role].toLowerCase()}${from}: ${content.join(" ")}`;
}
