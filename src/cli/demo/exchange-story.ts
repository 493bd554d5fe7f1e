import { setTimeout as sleep } from "node:timers/promises";
import {
  type AgentSessions,
  type Exchange,
  Exchange_AnnounceOutcome,
  Exchange_EndReason,
  Exchange_Phase,
} from "../../client/index.ts";
import type { Turn } from "../../host/index.ts";
import type { Stage, Story } from "./story.ts";
import { openTerminal } from "./terminal.ts";

const HERON = "agent:heron:main";
const QUESTION = "Is Sue's boat ready for Saturday?";
const ANNOUNCE = "Your boat is ready for Saturday: new ropes, full tank.";
const tries = 400;

/** Two agents talk it over, and what came of it reaches a person on another channel. */
export const exchangeStory: Story = {
  name: "exchange",
  summary: "heron asks lark, the two take turns until one has enough, and lark tells its person in a terminal",
  async run(stage: Stage) {
    await stage.startHost({ hostId: "exchange-story", agents: { heron, lark } });
    const terminal = openTerminal(stage, { connectorId: "exchange-story-terminal", person: "sue", agentId: "lark" });
    try {
      const session = await terminal.type("Hi, it's Sue.");
      stage.check(
        await terminal.shows("Hello Sue, I am lark."),
        "an ordinary reply goes out to the terminal the message came from",
      );
      stage.tell(`heron is asked: "${QUESTION}", and sends to ${session} without waiting.`);
      const { client } = stage;
      await client.sendMessage({ session: HERON, message: `${session} ${QUESTION}`, waitMs: 20_000 });
      const exchange = await untilDelivered(client);
      await tellTurns(stage, exchange);
      checkExchange(stage, exchange);
      stage.check(await terminal.shows(ANNOUNCE), "the announce appears in the terminal");
      stage.check(terminal.lines.length === 2, "and nothing else of the conversation does");
    } finally {
      await terminal.close();
    }
  },
};

/** Passes the question on; in its turns asks once more, then has enough. */
async function heron(turn: Turn): Promise<string> {
  switch (turn.run.exchangeStep) {
    case "": {
      const [session = "", ...question] = turn.text.split(" ");
      await turn.sessions.sendMessage({ session, message: question.join(" "), waitMs: 0 });
      return "I asked lark.";
    }
    case "ping_pong/1":
      return "And the tank?";
    default:
      return "REPLY_SKIP";
  }
}

async function lark(turn: Turn): Promise<string> {
  if (turn.run.provenance?.sourceSessionKey === "") return answerPerson(turn);
  return turn.run.exchangeStep === "primary" ? "The ropes are new." : "The tank is full.";
}

function answerPerson({ run }: Turn): string {
  return run.exchangeStep === "announce" ? ANNOUNCE : "Hello Sue, I am lark.";
}

/** The newest exchange that heron asked for, once its announce has arrived. */
async function untilDelivered({ runs }: AgentSessions): Promise<Exchange> {
  let found: Exchange | undefined;
  for (let n = 0; n < tries; n++) {
    [found] = (await runs.listExchanges({ requester: HERON, pageSize: 1 })).exchanges;
    if (found?.announceOutcome === Exchange_AnnounceOutcome.DELIVERED) return found;
    await sleep(50);
  }
  throw new Error(`the announce did not arrive; its exchange: ${JSON.stringify(found?.announceOutcome)}`);
}

async function tellTurns({ client, tell }: Stage, { runIds }: Exchange): Promise<void> {
  tell("What happened, as the exchange has it:");
  for (const runId of runIds) {
    const { run } = await client.runs.getRun({ runId });
    tell(`  ${run!.exchangeStep.padEnd(12)} ${run!.agentId}: ${run!.reply}`);
  }
}

function checkExchange(stage: Stage, { phase, turn, maxTurns, endReason, runIds }: Exchange): void {
  stage.tell(`  ${turn} turns of at most ${maxTurns}, ended by ${Exchange_EndReason[endReason]}`);
  stage.check(phase === Exchange_Phase.CLOSED && runIds.length === 5, "the exchange is closed after five runs");
  stage.check(
    turn === 3 && endReason === Exchange_EndReason.REPLY_SKIP,
    "REPLY_SKIP ended the turns, and is on record",
  );
}
