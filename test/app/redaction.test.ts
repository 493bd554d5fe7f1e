import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { cancelRun } from "../../src/app/cancel-run.ts";
import { getRun } from "../../src/app/get-run.ts";
import { listMessages } from "../../src/app/list-messages.ts";
import { listRunEvents } from "../../src/app/list-run-events.ts";
import { listRuns } from "../../src/app/list-runs.ts";
import { listSessions } from "../../src/app/list-sessions.ts";
import { waitRun } from "../../src/app/wait-run.ts";
import { watchRun } from "../../src/app/watch-run.ts";
import type { Principal } from "../../src/domain/principal.ts";
import { MASK } from "../../src/domain/redact.ts";
import type { Run } from "../../src/domain/run.ts";
import type { Session } from "../../src/domain/session.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { collect } from "../support/collect.ts";
import { addRun, eventsOf, TestHost } from "../support/seed.ts";
import { actingAs, addMessages, addSession, openFleet, operator, say, send } from "../support/session-tools.ts";

const secret = "sk-test-1234567890abcdef";
/** Any half of it would be worth having. */
const shards = [secret.slice(0, 12), secret.slice(12)];

let app: TestApp;
let nova: Session;
let otter: Session;
let foreign: Principal;
let unmasked: [string, Principal][];
beforeAll(async () => {
  app = await testApp({ config: openFleet });
  nova = await addSession(app, "agent:nova:main");
  otter = await addSession(app, "agent:otter:direct:leaky");
  foreign = actingAs(nova);
  unmasked = [
    ["operator", operator],
    ["host", { role: "host", name: "farm", agents: ["otter"] }],
    ["the session itself", actingAs(otter)],
  ];
});

function shows(answer: unknown): boolean {
  const text = JSON.stringify(answer, (_, value) => (typeof value === "bigint" ? String(value) : value));
  return shards.some((shard) => text.includes(shard));
}

describe("transcripts", () => {
  const raw = Buffer.from(`{"content":"API_KEY=${secret}"}`);
  const page = { pageSize: 0, includeToolResults: true, includeInternal: false } as const;
  const bodies = () =>
    app.db.selectFrom("messages").select(["body", "raw"]).where("session", "=", otter.id).orderBy("seq").execute();

  beforeAll(async () => {
    await addMessages(app, otter, [
      say(`API_KEY=${secret}`, { role: "tool_result", raw }),
      say(`${"x".repeat(3_930)} ${secret}`),
      say("call", {
        role: "assistant",
        parts: [{ type: "tool_call", toolCallId: "c", name: "curl", arguments: { header: `Bearer ${secret}` } }],
      }),
      say(`harmless`),
    ]);
  });

  test("a successor under the same key, after a deletion, is another session", async () => {
    const successor = actingAs({ ...otter, addressId: otter.addressId + 1_000_000n });
    const seen = await listMessages(app, { ...page, view: "full", principal: successor, session: otter.sessionKey });
    expect([shows(seen), seen.contentRedacted]).toEqual([false, true]);
  });

  test.each(["bounded", "full"] as const)("C113: history of another session is masked, %s", async (view) => {
    const before = await bodies();
    const seen = await listMessages(app, { ...page, view, principal: foreign, session: otter.sessionKey });
    expect(shows(seen)).toBe(false);
    expect(seen).toMatchObject({ contentRedacted: true });
    expect(seen.messages).toHaveLength(4);
    expect(seen.messages[0]?.parts).toEqual([{ type: "text", text: `API_KEY=${MASK}` }]);
    expect(seen.messages.every((message) => message.raw === undefined)).toBe(true);
    expect(await bodies()).toEqual(before);
  });

  test("C114: operators, hosts and the session itself read what is stored", async () => {
    for (const [, principal] of unmasked) {
      const seen = await listMessages(app, { ...page, view: "full", principal, session: otter.sessionId });
      expect(seen).toMatchObject({ contentRedacted: false });
      expect(seen.messages[0]).toMatchObject({ parts: [{ text: `API_KEY=${secret}` }], raw });
    }
  });

  test("a page on which nothing was masked does not say so, whatever is stored elsewhere", async () => {
    const request = { ...page, pageSize: 1, view: "full", principal: foreign, session: otter.sessionKey } as const;
    expect(await listMessages(app, request)).toMatchObject({ contentRedacted: false, messages: [{}] });
  });

  test("the last messages in a list are masked for other sessions", async () => {
    const list = { pageSize: 0, kinds: [], messageLimit: 20, archived: false, agentId: "otter" };
    const { sessions } = await listSessions(app, { ...list, principal: foreign });
    expect(sessions[0]?.messages).toHaveLength(3);
    expect(shows(sessions)).toBe(false);
    expect(shows(await listSessions(app, { ...list, principal: operator }))).toBe(true);
  });
});

describe("runs", () => {
  const host = () => new TestHost(app);
  const stop = new AbortController().signal;
  let run: Run;

  beforeAll(async () => {
    run = await addRun(app, otter);
    const farm = host();
    const held = await farm.claimOne({ agentIds: ["otter"] });
    await farm.append(held, 1, [
      { type: "text_delta", messageId: "m", offset: 0, text: shards[0]! },
      { type: "text_delta", messageId: "m", offset: 12, text: shards[1]! },
      { type: "tool_call", toolCallId: "c", name: "curl", arguments: { token: secret } },
      { type: "tool_result", toolCallId: "c", name: "curl", isError: false, text: `OPENAI_API_KEY=${secret}` },
      { type: "progress", note: `found ${secret}` },
    ]);
    await farm.complete(held, `it is ${secret}`);
  });

  async function answersTo(principal: Principal): Promise<Record<string, unknown>> {
    const { runId } = run;
    const watch = { runId, excludeDeltas: false, idleMs: 1_000 };
    const events = { runId, afterSequence: 0, pageSize: 100, excludeDeltas: false, waitMs: 0 };
    return {
      getRun: await getRun(app, principal, runId),
      listRuns: await listRuns(app, principal, { pageSize: 5, states: [] }),
      waitRun: await waitRun(app, principal, runId, 1),
      snapshot: await collect(watchRun(app, principal, watch, stop), (frame) => frame),
      watchRun: await collect(watchRun(app, principal, { ...watch, afterSequence: 0 }, stop), (frame) => frame),
      listRunEvents: await listRunEvents(app, principal, events),
    };
  }

  test("C113: no reading of another session's run shows a secret, not in pieces either", async () => {
    const before = await eventsOf(app, run);
    const answers = await answersTo(foreign);
    for (const [name, answer] of Object.entries(answers)) expect([name, shows(answer)]).toEqual([name, false]);
    expect(answers["getRun"]).toMatchObject({ reply: `it is ${MASK}` });
    expect(await eventsOf(app, run)).toEqual(before);
  });

  test("text deltas are withheld, everything else comes in order, and positions go on behind the end", async () => {
    const events = { runId: run.runId, afterSequence: 0, pageSize: 100, excludeDeltas: false, waitMs: 0 };
    const page = await listRunEvents(app, foreign, events);
    const types = page.events.map(({ body }) => body.type);
    expect(types).not.toContain("text_delta");
    expect(types).toEqual(expect.arrayContaining(["tool_call", "tool_result", "progress", "message_added"]));
    expect(page.events.at(-1)?.body).toMatchObject({ type: "state_change", reply: `it is ${MASK}` });
    expect(page).toMatchObject({ runEnded: true, lastSequence: (await getRun(app, operator, run.runId)).lastSequence });
  });

  test("C114: operators, hosts and the session itself see all of it", async () => {
    for (const [who, principal] of unmasked) {
      for (const [name, answer] of Object.entries(await answersTo(principal))) {
        expect([who, name, shows(answer)]).toEqual([who, name, true]);
      }
    }
  });

  test("C114: the host gets its input, and what it wrote before, as they were stored", async () => {
    const session = await addSession(app, "agent:quill:direct:replay");
    await addRun(app, session, { text: `use ${secret}` });
    const claimed = await host().claimOne({ agentIds: ["quill"] });
    expect(claimed.input.messages).toMatchObject([{ parts: [{ text: `use ${secret}` }] }]);
  });

  test("the answer to a send is masked for its sender, error and detail too", async () => {
    const session = await addSession(app, "agent:quill:direct:answers");
    const request = { session: session.sessionKey, principal: foreign, requestId: randomUUID() };
    await send(app, request);
    const farm = host();
    const held = await farm.claimOne({ agentIds: ["quill"] });
    await farm.fail(held, { message: `401 for ${secret}` });
    const answer = await send(app, { ...request, waitTimeoutMs: 1_000 });
    expect(answer).toMatchObject({ outcome: "failed", run: { error: { message: `401 for ${MASK}` } } });
    expect(shows(answer)).toBe(false);
    const canceled = await cancelRun(app, foreign, { requestId: randomUUID(), runId: answer.run.runId });
    expect(shows(canceled)).toBe(false);
  });
});
