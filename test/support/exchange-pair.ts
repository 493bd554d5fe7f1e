import { randomUUID } from "node:crypto";
import type { ClaimedRun } from "../../src/app/claimed-run.ts";
import type { App } from "../../src/app/context.ts";
import { getExchange } from "../../src/app/get-exchange.ts";
import { parseConfig } from "../../src/config/schema.ts";
import type { ExchangeView } from "../../src/domain/exchange.ts";
import type { Run } from "../../src/domain/run.ts";
import type { DeliveryRoute, Session } from "../../src/domain/session.ts";
import { noLease } from "../../src/store/runs.ts";
import type { NewSession } from "../../src/store/sessions.ts";
import { operator, TestHost } from "./seed.ts";
import { actingAs, addSession, type SendFields, send } from "./session-tools.ts";

/** Nova asks, otter is asked, each in reach of the other; quill is a third. */
export function pairConfig(agentToAgent: object = {}) {
  return parseConfig({
    session: { agentToAgent },
    agents: { list: [{ id: "nova", default: true }, { id: "otter" }, { id: "quill" }] },
    tools: { sessions: { visibility: "all" }, agentToAgent: { enabled: true } },
  });
}

export const agentIds = ["nova", "otter", "quill"];

export const telegram: DeliveryRoute = { channel: "telegram", to: "t1", accountId: "b2", threadId: "7" };

/** A requester and a target with a way out to people, and a host that runs both. */
export class ExchangePair {
  readonly requester: Session;
  readonly target: Session;
  readonly host: TestHost;
  readonly #app: App;

  constructor(app: App, requester: Session, target: Session) {
    this.#app = app;
    this.requester = requester;
    this.target = target;
    this.host = new TestHost(app);
  }

  static async open(
    app: App,
    { requesterKey, ...target }: Partial<NewSession> & { requesterKey?: string } = {},
  ): Promise<ExchangePair> {
    const asking = await addSession(app, requesterKey ?? `agent:nova:direct:${randomUUID()}`);
    const fields = { deliveryRoute: telegram, lastChannel: "telegram", lastTo: "t1", ...target };
    return new ExchangePair(app, asking, await addSession(app, `agent:otter:direct:${randomUUID()}`, fields));
  }

  /** The same pair, worked on by another replica. */
  on(app: App): ExchangePair {
    return new ExchangePair(app, this.requester, this.target);
  }

  /** The requester's send; its primary run. */
  async ask(message = "what colour?", fields: Partial<SendFields> = {}): Promise<Run> {
    const asked = { session: this.target.sessionId, principal: actingAs(this.requester), message };
    return (await send(this.#app, { ...asked, ...fields })).run;
  }

  /** Claims what is ready for one of the two sessions. */
  async claim(): Promise<ClaimedRun> {
    const claimed = await this.host.claimOne({ agentIds });
    return claimed;
  }

  /** Claims the next run and completes it. */
  async say(text: string): Promise<ClaimedRun> {
    const claimed = await this.claim();
    await this.host.complete(claimed, text);
    return claimed;
  }

  /** One after the other. Returns the runs that said it. */
  async sayAll(...texts: readonly string[]): Promise<ClaimedRun[]> {
    const runs: ClaimedRun[] = [];
    for (const text of texts) runs.push(await this.say(text));
    return runs;
  }

  exchangeOf(run: Run): Promise<ExchangeView> {
    return getExchange(this.#app, operator, run.exchange!.exchangeId);
  }
}

/** Ends what earlier tests left open, so that a host claims what its own test asks for. */
export async function endOpenRuns(app: App): Promise<void> {
  await app.db
    .updateTable("runs")
    .set({ state: 5, ended_at: app.clock.now(), ...noLease })
    .where("ended_at", "is", null)
    .execute();
}

/** What is in the outbox, oldest first. */
export async function deliveriesOf(
  app: App,
  run: Run,
): Promise<{ text: string; to: string | null; channel: string }[]> {
  const rows = await app.db
    .selectFrom("deliveries")
    .select(["text", "to_address", "channel"])
    .where("exchange", "=", run.exchange!.id)
    .orderBy("id")
    .execute();
  return rows.map(({ text, to_address: to, channel }) => ({ text, to, channel }));
}

/** Steps that were enqueued, with the session each ran in. */
export async function stepsOf(app: App, run: Run): Promise<string[]> {
  const rows = await app.db
    .selectFrom("runs")
    .innerJoin("sessions", "sessions.id", "runs.session")
    .select(["exchange_step", "sessions.agent_id"])
    .where("exchange", "=", run.exchange!.id)
    .orderBy("runs.id")
    .execute();
  return rows.map((row) => `${row.agent_id} ${row.exchange_step}`);
}
