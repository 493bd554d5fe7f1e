import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import {
  type AgentSessions,
  ChatType,
  carryDeliveries,
  DeliveryState,
  ReceiveOutcome,
  RunState,
} from "../../src/client/index.ts";

/** A terminal as a channel: one person, one chat. Each has an account of its own, so that no other terminal gets its answers. */
export interface Terminal {
  readonly client: AgentSessions;
  /** Who types; also the address of the chat. */
  readonly person: string;
  /** Default: the default agent of the service. */
  readonly agentId?: string;
  /** What the person types, line by line. */
  readonly lines: AsyncIterable<string>;
  /** Shows a line. */
  readonly show: (line: string) => void;
  /** How long to stay for announces after the last line was answered; default 0. */
  readonly lingerMs?: number;
}

const CHANNEL = "terminal";
const WAITING = [DeliveryState.PENDING, DeliveryState.CLAIMED];
const ENDED = new Set([RunState.COMPLETED, RunState.FAILED, RunState.CANCELED, RunState.TIMED_OUT]);

/** Chats until there are no more lines and everything was answered. Answers appear as they come, and so do announces. */
export async function chat(terminal: Terminal): Promise<void> {
  const end = new AbortController();
  const carrying = carryDeliveries(terminal.client.channels, {
    connectorId: `terminal-${terminal.person}`,
    channels: [{ channel: CHANNEL, accountIds: [terminal.person] }],
    post: async ({ text, route }) => {
      terminal.show(`agent${route?.threadId && ` #${route.threadId}`}> ${text}`);
      return undefined;
    },
    // A thread is a mark at the beginning of a line. A real channel opens one in the chat of the delivery's route.
    bindThread: async ({ text }) => {
      const threadId = randomUUID().slice(0, 4);
      terminal.show(`service> "${text}" has a thread: begin a line with #${threadId}`);
      return { threadId };
    },
    signal: end.signal,
  });
  const typed = converse(terminal).finally(() => end.abort());
  await Promise.all([carrying, typed]);
}

async function converse(terminal: Terminal): Promise<void> {
  const said: Said[] = [];
  for await (const line of terminal.lines) {
    if (line.trim() !== "") said.push(await say(terminal, line));
  }
  for (const each of said) await untilAnswered(terminal, each);
  await untilDelivered(terminal);
  await sleep(terminal.lingerMs ?? 0);
  await untilDelivered(terminal);
}

interface Said {
  readonly text: string;
  readonly threadId: string;
  /** A real provider gives each message an id; it is what makes a repeat harmless. */
  readonly providerMessageId: string;
}

async function say(terminal: Terminal, line: string): Promise<Said> {
  const said = { ...toThread(line), providerMessageId: randomUUID() };
  const { outcome, detail } = await receive(terminal, said);
  if (outcome !== ReceiveOutcome.ACCEPTED) terminal.show(`service> ${detail}`);
  return said;
}

/** "#1a2b how many?" goes to the thread 1a2b. */
function toThread(line: string): { text: string; threadId: string } {
  const [, threadId = "", text = line] = /^#([0-9a-f]{4})\s+(.*)$/.exec(line) ?? [];
  return { text, threadId };
}

function receive({ client, person, agentId = "" }: Terminal, said: Said) {
  const where = { channel: CHANNEL, accountId: person, chatType: ChatType.DIRECT, chatId: person };
  return client.channels.receiveMessage({ ...said, ...where, senderId: person, senderName: person, agentId });
}

/** A repeat of the message tells how its run stands. */
async function untilAnswered(terminal: Terminal, said: Said): Promise<void> {
  for (;;) {
    const { run } = await receive(terminal, said);
    if (run === undefined || ENDED.has(run.state)) return;
    await sleep(100);
  }
}

async function untilDelivered({ client, person }: Terminal): Promise<void> {
  for (;;) {
    const { deliveries } = await client.channels.listDeliveries({ channel: CHANNEL, states: WAITING });
    if (!deliveries.some(({ route }) => route?.accountId === person)) return;
    await sleep(100);
  }
}
