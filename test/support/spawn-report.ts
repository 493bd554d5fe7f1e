import { expect } from "vitest";
import type { ClaimedRun } from "../../src/app/claimed-run.ts";
import { completeRun } from "../../src/app/complete-run.ts";
import type { App } from "../../src/app/context.ts";
import { getExchange } from "../../src/app/get-exchange.ts";
import { parseConfig } from "../../src/config/schema.ts";
import type { ExchangeState } from "../../src/domain/exchange/state.ts";
import type { ExchangeView } from "../../src/domain/exchange.ts";
import { type MessageBody, messageText } from "../../src/domain/message.ts";
import type { DeliveryRoute, Session } from "../../src/domain/session.ts";
import type { Spawn } from "../../src/domain/spawn.ts";
import { decodeMessageBody } from "../../src/store/message-body.ts";
import type { NewSession } from "../../src/store/sessions.ts";
import { findSpawn } from "../../src/store/spawns.ts";
import { addLane, heldBy, operator, TestHost } from "./seed.ts";
import { type Spawned, type SpawnFields, spawn } from "./spawn.ts";

/** Room for siblings, transcripts with a path, and sub-agents that may spawn themselves. */
export const announceConfig = parseConfig({
  session: { store: "/store/{agentId}" },
  agents: { defaults: { subagents: { maxChildrenPerAgent: 10, announceTimeoutSeconds: 120 } } },
  tools: { subagents: { tools: { allow: ["*", "sessions_spawn"] } } },
});

export const chat: DeliveryRoute = { channel: "telegram", to: "t1", accountId: "b2", threadId: "7" };

/** A requester, what it spawns, and a host that runs all of them. */
export class SpawnStory {
  readonly requester: Session;
  readonly host: TestHost;
  readonly #app: App;

  constructor(app: App, requester: Session) {
    this.#app = app;
    this.requester = requester;
    this.host = new TestHost(app);
  }

  /** With a way out to people. */
  static async inChat(app: App, fields: Partial<NewSession> = {}): Promise<SpawnStory> {
    const route = { deliveryRoute: chat, lastChannel: chat.channel, lastTo: chat.to! };
    return new SpawnStory(app, await addLane(app, { ...route, ...fields }));
  }

  static async withoutChat(app: App): Promise<SpawnStory> {
    return new SpawnStory(app, await addLane(app));
  }

  /** The same, worked on by another replica. */
  on(app: App): SpawnStory {
    return new SpawnStory(app, this.requester);
  }

  spawn(fields: Partial<SpawnFields> = {}): Promise<Spawned> {
    return spawn(this.#app, { from: this.requester, ...fields });
  }

  claim(): Promise<ClaimedRun> {
    return this.host.claimOne();
  }

  /** Claims the next run and completes it. */
  async say(text: string): Promise<ClaimedRun> {
    const claimed = await this.claim();
    await this.host.complete(claimed, text);
    return claimed;
  }

  /** Claims the next run and completes it without a message. */
  async sayNothing(): Promise<ClaimedRun> {
    const claimed = await this.claim();
    await completeRun(this.#app, heldBy(claimed));
    return claimed;
  }

  exchangeOf({ result }: Spawned): Promise<ExchangeView> {
    return getExchange(this.#app, operator, result.exchangeId);
  }

  async stateOf(spawned: Spawned): Promise<ExchangeState> {
    return (await this.exchangeOf(spawned)).state;
  }

  /** What was put into the requester's transcript; fails unless it is the only report there. */
  async report(): Promise<string> {
    const reports = await reportsOf(this.#app, this.requester);
    expect(reports).toHaveLength(1);
    return reports[0]!;
  }

  async spawnOf({ child }: Spawned): Promise<Spawn> {
    const stored = await findSpawn(this.#app.db, child.id);
    if (!stored) throw new Error("nobody spawned it");
    return stored;
  }
}

/** What was put into a transcript, oldest first. */
export async function messagesOf(app: App, { id }: Pick<Session, "id">): Promise<MessageBody[]> {
  const rows = await app.db.selectFrom("messages").select("body").where("session", "=", id).orderBy("seq").execute();
  return rows.map(({ body }) => decodeMessageBody(body));
}

/** Reports in a transcript: what sub-agents of the session came to. */
export async function reportsOf(app: App, session: Pick<Session, "id">): Promise<string[]> {
  return (await messagesOf(app, session)).flatMap(({ parts, provenance }) =>
    provenance?.sourceTool === "sessions_spawn" && messageText(parts).startsWith("Status: ")
      ? [messageText(parts)]
      : [],
  );
}

/** Announces in the outbox for these sessions, oldest first. */
export async function announcesOf(app: App, session: Pick<Session, "id">) {
  return app.db
    .selectFrom("deliveries")
    .select(["delivery_id", "text", "channel", "to_address", "account_id", "thread_id"])
    .where("session", "=", session.id)
    .where("kind", "=", 1)
    .orderBy("id")
    .execute();
}
