import { sql } from "kysely";
import type { App } from "../../src/app/context.ts";
import type { Delivery } from "../../src/domain/delivery.ts";
import type { DeliveryRoute, Session } from "../../src/domain/session.ts";
import type { ThreadBinding } from "../../src/domain/thread-binding.ts";
import { findDelivery } from "../../src/store/deliveries.ts";
import { findSessionById } from "../../src/store/sessions.ts";
import { findBinding } from "../../src/store/thread-bindings.ts";
import { TestConnector } from "./deliveries.ts";
import { addLane } from "./seed.ts";
import { type SpawnFields, spawn } from "./spawn.ts";

/** What tests of threads share: a requester in a chat, and a connector there that can open threads. */

export const chat = { channel: "telegram", to: "t1", accountId: "b2" } as const;

export function threadConnector(app: App): Promise<TestConnector> {
  return new TestConnector(app).register({ channel: "telegram", abilities: ["threads"] });
}

export function addRequester(app: App, deliveryRoute: DeliveryRoute = chat): Promise<Session> {
  const { channel: lastChannel, to: lastTo } = deliveryRoute;
  return addLane(app, { deliveryRoute, lastChannel, ...(lastTo !== undefined && { lastTo }) });
}

export async function spawnInThread(app: App, from: Session, fields: Partial<SpawnFields> = {}): Promise<Session> {
  return (await spawn(app, { from, thread: true, ...fields })).child;
}

/** A child whose thread is bound. */
export async function bindChild(
  app: App,
  connector: TestConnector,
  from: Session,
  threadId: string,
): Promise<{ child: Session; route: DeliveryRoute }> {
  const child = await spawnInThread(app, from);
  const [held] = await claimBinds(connector);
  await connector.bind(held!, { threadId });
  return { child: await sessionNow(app, child), route: (await bindingOf(app, child)).route };
}

/** Claims what is there; the requests for threads of it. */
export async function claimBinds(connector: TestConnector): Promise<Delivery[]> {
  return (await connector.claim()).filter(({ kind }) => kind === "bind_thread");
}

export async function bindingOf(app: App, child: Session): Promise<ThreadBinding> {
  const binding = await findBinding(app.db, child.id);
  if (!binding) throw new Error("no binding");
  return binding;
}

export async function sessionNow(app: App, { id }: Session): Promise<Session> {
  return (await findSessionById(app.db, id))!;
}

/** What was asked of connectors for the thread of a child, in order. */
export async function threadDeliveries(app: App, child: Session): Promise<Delivery[]> {
  const rows = await app.db
    .selectFrom("deliveries")
    .select("delivery_id")
    .where(sql<boolean>`effect_key like ${`${child.sessionId}/%`}`)
    .orderBy("id")
    .execute();
  return Promise.all(rows.map(async (row) => (await findDelivery(app.db, row.delivery_id))!));
}
