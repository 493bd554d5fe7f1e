import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { listMessages } from "../../src/app/list-messages.ts";
import { listSessions } from "../../src/app/list-sessions.ts";
import { type Message, messageText, type Part } from "../../src/domain/message.ts";
import type { Principal } from "../../src/domain/principal.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { captures, fixtureState, runImport } from "./support.ts";

/** What the source's session tools answered, against what this service shows of the imported store. */

const operator: Principal = { role: "operator", name: "local" };

let app: TestApp;

beforeAll(async () => {
  app = await testApp();
  await runImport(app, fixtureState);
});

describe("the list", () => {
  it("shows the same newest sessions with the same names, times and figures", async () => {
    const { sessions: captured } = await readCapture<{ sessions: CapturedSession[] }>("433-list-after-hook-cron");
    const page = await listSessions(app, {
      principal: operator,
      pageSize: 12,
      kinds: [],
      messageLimit: 0,
      archived: false,
    });
    const shown = page.sessions.map((session) => ({
      key: session.sessionKey,
      sessionId: session.sessionId,
      updatedAt: session.updatedAt.getTime(),
      label: session.label,
      model: session.model,
      contextTokens: session.contextTokens,
      totalTokens: session.totalTokens,
      systemSent: session.systemSent,
      abortedLastRun: session.abortedLastRun,
      lastChannel: session.lastChannel,
      deliveryContext: session.deliveryRoute,
    }));
    expect(shown).toEqual(
      captured.map(({ kind: _k, channel: _c, displayName: _d, transcriptPath: _t, ...row }) => row),
    );
  });

  it("calls cron and hook sessions by their kind, where the source says other (S2.8)", async () => {
    const page = await listSessions(app, {
      principal: operator,
      pageSize: 3,
      kinds: [],
      messageLimit: 0,
      archived: false,
    });
    expect(page.sessions.map((session) => session.kind)).toEqual(["cron", "hook", "hook"]);
  });

  it("never shows reserved sessions (S2.5)", async () => {
    const page = await listSessions(app, {
      principal: operator,
      pageSize: 200,
      kinds: [],
      messageLimit: 0,
      archived: false,
    });
    expect(page.sessions).toHaveLength(75);
    expect(page.next).toBeUndefined();
    expect(page.sessions.map((session) => session.sessionKey).filter((key) => /:(global|unknown)$/.test(key))).toEqual(
      [],
    );
  });
});

describe("the history", () => {
  it.each([
    // The first five messages were there from the start; what came later differs from run to run.
    ["049-history-full-key", "agent:main:main", false, 5],
    ["073-history-long", "agent:main:hist-long", true, 9],
    ["203-spawn-ok-history-child", "agent:main:subagent:83f424ee-c769-427c-9ffa-7e53a26f9661", true, 2],
    ["281-spawn-runTimeout-child-history", "agent:main:subagent:2f6563ac-f23d-449c-b0f4-3bb9470d72fe", true, 2],
  ])("of %s holds the same messages", async (name, key, includeToolResults, count) => {
    const { messages: captured } = await readCapture<{ messages: CapturedMessage[] }>(name);
    const shown = await allMessages(key, includeToolResults);
    const outlines = shown.filter((message) => !isSilent(message)).map(outline);
    expect(outlines.slice(0, count)).toEqual(captured.slice(0, count).map(capturedOutline));
  });
});

/** The source's history leaves out what an agent says when it has nothing to say. */
function isSilent(message: Message): boolean {
  return message.role === "assistant" && messageText(message.parts) === "NO_REPLY";
}

interface CapturedSession {
  kind: string;
  channel: string;
  displayName?: string;
  transcriptPath: string;
}

interface CapturedMessage {
  role: string;
  content: readonly { type: string; text?: string; thinking?: string; name?: string; arguments?: object }[];
  provider?: string;
  model?: string;
  stopReason?: string;
  toolCallId?: string;
}

async function readCapture<T>(name: string): Promise<T> {
  const file = JSON.parse(await readFile(join(captures, `${name}.json`), "utf8")) as {
    response: { result: { content: readonly [{ text: string }] } };
  };
  return JSON.parse(file.response.result.content[0].text) as T;
}

async function allMessages(session: string, includeToolResults: boolean): Promise<Message[]> {
  const filter = { includeToolResults, includeInternal: false };
  const input = { principal: operator, session, pageSize: 200, view: "full", ...filter } as const;
  let page = await listMessages(app, input);
  let messages = [...page.messages];
  while (page.older !== undefined) {
    page = await listMessages(app, { ...input, position: page.older });
    messages = [...page.messages, ...messages];
  }
  return messages;
}

/** What both sides show of a message. */
function outline(message: Message) {
  return {
    role: message.role === "tool_result" ? "toolResult" : message.role,
    parts: message.parts.map(partOutline),
    model: message.model,
    provider: message.provider,
    stopReason: message.stopReason,
    toolCallId: message.toolCallId,
  };
}

function partOutline(part: Part): string {
  switch (part.type) {
    case "text":
      return `text ${plainText(part.text)}`;
    case "thinking":
      return `thinking ${part.text}`;
    case "tool_call":
      return `toolCall ${part.name} ${JSON.stringify(part.arguments)}`;
    default:
      return part.type;
  }
}

function capturedOutline(message: CapturedMessage) {
  const parts = message.content.map((part) => {
    if (part.type === "text") return `text ${plainText(part.text!)}`;
    if (part.type === "thinking") return `thinking ${part.thinking}`;
    return part.type === "toolCall" ? `toolCall ${part.name} ${JSON.stringify(part.arguments)}` : part.type;
  });
  const { role, model, provider, stopReason, toolCallId } = message;
  return { role, parts, model, provider, stopReason, toolCallId };
}

/** The first ten letters: the source strips time stamps and steering tags from texts, masks secrets and cuts long ones. */
function plainText(text: string): string {
  const withoutStamp = text.replace(/^\[\w{3} [\d-]+ [\d:]+ \w+\] /, "");
  return withoutStamp.replace(/\[\[.*?\]\]/g, "").slice(0, 10);
}
