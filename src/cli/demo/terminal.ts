import { setTimeout as sleep } from "node:timers/promises";
import { ChatType, carryDeliveries } from "../../client/index.ts";
import type { Stage } from "./story.ts";

/** Who sits in front of a terminal, and which agent is behind it. */
export interface TerminalCast {
  readonly connectorId: string;
  readonly person: string;
  readonly agentId: string;
}

export interface Terminal {
  /** Everything shown so far. */
  readonly lines: readonly string[];
  /** Types a line; returns the session that it went to. */
  type(text: string): Promise<string>;
  /** Whether a text with these parts is shown within some seconds. */
  shows(...parts: readonly string[]): Promise<boolean>;
  close(): Promise<void>;
}

const TRIES = 400;

/** A terminal as a channel, with one person in front of it. */
export function openTerminal({ client, tell }: Stage, { connectorId, person, agentId }: TerminalCast): Terminal {
  const lines: string[] = [];
  const end = new AbortController();
  const carrying = carryDeliveries(client.channels, {
    connectorId,
    channels: [{ channel: "terminal" }],
    post: async ({ text }) => {
      lines.push(text);
      tell(`  [terminal] ${agentId}: ${text.replaceAll("\n", "\n             ")}`);
      return undefined;
    },
    signal: end.signal,
  });
  let typed = 0;
  return {
    lines,
    async type(text) {
      tell(`  [terminal] ${person}: ${text}`);
      const chat = { channel: "terminal", chatType: ChatType.DIRECT, chatId: person, senderId: person, agentId };
      const providerMessageId = `line-${++typed}`;
      const { sessionKey } = await client.channels.receiveMessage({ ...chat, providerMessageId, text });
      return sessionKey;
    },
    async shows(...parts) {
      const isShown = () => lines.some((line) => parts.every((part) => line.includes(part)));
      for (let n = 0; n < TRIES && !isShown(); n++) await sleep(50);
      return isShown();
    },
    async close() {
      end.abort();
      await carrying;
    },
  };
}
