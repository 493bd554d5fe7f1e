import { randomUUID } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { beforeAll, expect, test } from "vitest";
import { deleteSession } from "../../src/app/delete-session.ts";
import { type Ending, endRun } from "../../src/app/end-run.ts";
import { lockLane } from "../../src/app/held-run.ts";
import { settleExchangeDelivery } from "../../src/app/settle-exchange-delivery.ts";
import type { ExchangeState, Side } from "../../src/domain/exchange/state.ts";
import { type ExchangeEvent, step } from "../../src/domain/exchange/step.ts";
import type { Run } from "../../src/domain/run.ts";
import type { Session } from "../../src/domain/session.ts";
import { findExchange } from "../../src/store/exchange-reads.ts";
import { lockExchange } from "../../src/store/exchanges.ts";
import { findExchangeRun } from "../../src/store/runs.ts";
import { inTransaction } from "../../src/store/transaction.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { telegram } from "../support/exchange-pair.ts";
import { beginExchange, toExchangeEvent } from "../support/exchange-script.ts";
import { addLane, addRun, operator, TestHost } from "../support/seed.ts";

let app: TestApp;
let host: TestHost;
beforeAll(async () => {
  app = await testApp();
  host = new TestHost(app);
});

const folder = new URL("../domain/exchange/", import.meta.url);
const stories = readdirSync(folder)
  .filter((file) => file.endsWith(".txt"))
  .flatMap((file) => storiesOf(file, readFileSync(new URL(file, folder), "utf8")));

/** The commands of a script, cut where a new exchange begins. */
function storiesOf(file: string, script: string): (readonly [string, readonly string[]])[] {
  const commands = script.split(/\n{2,}/).flatMap((block) => block.split(/^----/m)[0]!.trim().split("\n"));
  const told: string[][] = [];
  for (const command of commands.filter((line) => line !== "" && !line.startsWith("#"))) {
    if (beginExchange(command)) told.push([command]);
    else told.at(-1)!.push(command);
  }
  return told.map((story, n) => [`${file} ${n + 1}: ${story.join(", ")}`, story] as const);
}

/** An exchange as rows, and the same as the value that the reducer makes of what happens to it. */
class StoredStory {
  readonly #primary: Run;
  readonly #sides: Readonly<Record<string, Session | undefined>>;
  #state: ExchangeState;

  constructor(state: ExchangeState, primary: Run, sides: Record<string, Session | undefined>) {
    this.#state = state;
    this.#primary = primary;
    this.#sides = sides;
  }

  static async begin(state: ExchangeState): Promise<StoredStory> {
    const target = await addLane(app);
    const requester = state.requester === "session" ? await addLane(app) : undefined;
    const exchange = {
      exchangeId: randomUUID(),
      target: target.id,
      request: "what colour?",
      chainId: randomUUID(),
      hop: 1,
      state,
      ...(requester && { requester: requester.id }),
      ...(state.route === "known" && { deliveryRoute: telegram }),
    };
    return new StoredStory(state, await addRun(app, target, { begins: exchange }), { target, requester });
  }

  async happen(event: ExchangeEvent): Promise<void> {
    const speaker = this.#sides[speakerIn(this.#state)]?.sessionId ?? "";
    const expected = expectAfter(this.#state, event, this.#gone.has(speaker));
    const done = await this.#do(event);
    if (!done) expect(expected).toBe(this.#state);
    this.#state = expected;
    const { state } = (await findExchange(app.db, this.#primary.exchange!.exchangeId))!.exchange;
    expect(withoutTexts(state)).toEqual(withoutTexts(expected));
    if (!this.#gone.has(this.#sides["target"]!.sessionId)) expect(state).toMatchObject(textsOf(expected));
  }

  /** Returns false for what cannot happen: the run has ended, or was never there. */
  async #do(event: ExchangeEvent): Promise<boolean> {
    const { id: exchange } = this.#primary.exchange!;
    switch (event.type) {
      case "delivery_settled":
        await inTransaction(app.db, async (tx) => {
          await settleExchangeDelivery(app, tx, (await lockExchange(tx, exchange))!, event.outcome);
        });
        return true;
      case "session_gone": {
        const session = this.#sides[event.side]?.sessionId;
        if (session === undefined || this.#gone.has(session)) return false;
        this.#gone.add(session);
        await deleteSession(app, { principal: operator, requestId: randomUUID(), session });
        return true;
      }
      case "run_finished": {
        const run = await findExchangeRun(app.db, exchange, event.step);
        if (!run || run.endedAt) return false;
        await host.claim({ maxRuns: 10 });
        await end(run, event.result);
        return true;
      }
    }
  }

  readonly #gone = new Set<string>();
}

/**
 * A deletion also settles a delivery that no connector holds: that of the session which speaks, of a spawn its requester.
 * A report to a deleted requester makes none.
 */
function expectAfter(before: ExchangeState, event: ExchangeEvent, speakerGone: boolean): ExchangeState {
  const { state } = step(before, event);
  const stops =
    state.phase === "closed" && (speakerGone || (event.type === "session_gone" && event.side === speakerIn(state)));
  return stops ? step(state, { type: "delivery_settled", outcome: "denied" }).state : state;
}

function speakerIn({ kind }: ExchangeState): Side {
  return kind === "spawn" ? "requester" : "target";
}

type Result = Extract<ExchangeEvent, { type: "run_finished" }>["result"];

async function end({ runId }: Run, result: Result): Promise<void> {
  await inTransaction(app.db, async (tx) =>
    endRun(app, tx, { ...(await lockLane(tx, runId))!, ending: toEnding(result) }),
  );
}

function toEnding(result: Result): Ending {
  switch (result.type) {
    case "said":
      return { state: "completed", reply: result.text };
    case "nothing":
      return { state: "completed" };
    case "denied":
      return { state: "failed", error: { code: "send_denied", message: "denied", retryable: false } };
    default:
      return { state: result.type };
  }
}

/** The words of a deleted session are deleted with it. */
function withoutTexts({ firstReply: _first, latestReply: _latest, route: _route, ...rest }: ExchangeState) {
  return rest;
}

function textsOf({ firstReply, latestReply }: ExchangeState) {
  return { ...(firstReply !== undefined && { firstReply }), ...(latestReply !== undefined && { latestReply }) };
}

test.each(stories)("stored as the reducer says: %s", async (_, [first, ...commands]) => {
  const story = await StoredStory.begin(beginExchange(first!)!);
  for (const command of commands) await story.happen(toExchangeEvent(command));
});

test("there are stories", () => {
  expect(stories.length).toBeGreaterThan(20);
});
