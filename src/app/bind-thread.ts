import type { Delivery } from "../domain/delivery.ts";
import { fieldInvalid } from "../domain/errors.ts";
import type { Session } from "../domain/session.ts";
import type { ThreadBinding } from "../domain/thread-binding.ts";
import type { Tx } from "../store/database.ts";
import { recordInbound } from "../store/session-route.ts";
import { findSessionById } from "../store/sessions.ts";
import { bindThread, findBindingById, findBoundChild, isThreadTaken } from "../store/thread-bindings.ts";
import type { Topic } from "../store/wakeups.ts";
import type { App } from "./context.ts";
import { closeThread } from "./thread-binding.ts";

/** The thread a connector opened: what messages in it come in under. */
export interface BoundThread {
  readonly threadId: string;
  /** Absent = the chat it was asked for. */
  readonly chatId?: string;
}

/**
 * Gives the thread that a connector opened for a locked request to its session, in the transaction that settles the request:
 * messages in it go there, and what the session says goes to it. A session that needs no thread by now lets go of it at
 * once, so that the connector closes it again. Also binds one whose request had failed and was sent again. Fails with
 * field_invalid for no thread, and for one that is bound to another session. Returns what to publish after the commit.
 */
export async function bindDeliveredThread(
  app: App,
  tx: Tx,
  { threadBinding }: Delivery,
  thread: BoundThread | undefined,
): Promise<Topic[]> {
  if (thread === undefined) throw fieldInvalid("bound_thread", "must name the thread for KIND_BIND_THREAD");
  const binding = threadBinding === undefined ? undefined : await findBindingById(tx, threadBinding);
  const child = binding && (await findSessionById(tx, binding.child));
  if (binding === undefined || child === undefined) return [];
  const { threadId, chatId = binding.route.to! } = thread;
  const route = { ...binding.route, to: chatId, threadId };
  if (!isWanted(binding, child)) return closeThread(app, tx, { ...binding, route }, child.sessionId, "ended");
  if ((await findBoundChild(tx, route)) !== undefined) throw refuseTakenThread();
  await bindThread(tx, binding.id, { chatId, threadId }, app.clock.now()).catch((error: unknown) => {
    throw isThreadTaken(error) ? refuseTakenThread() : error;
  });
  await recordInbound(tx, child, { route }, app.clock.now());
  return [];
}

function isWanted({ state }: ThreadBinding, child: Session): boolean {
  return child.state === "active" && (state === "requested" || state === "failed");
}

function refuseTakenThread() {
  return fieldInvalid("bound_thread", "is bound to another session already");
}
