import { AppError } from "../domain/errors.ts";
import type { Principal, SessionPrincipal } from "../domain/principal.ts";
import { isInScope } from "../domain/visibility.ts";
import { findWaitCycle } from "../domain/wait-cycle.ts";
import type { Tx } from "../store/database.ts";
import { findSessionById } from "../store/sessions.ts";
import { inTransaction } from "../store/transaction.ts";
import { deleteWaits, insertWaits, lockWaits, renewWaits } from "../store/waits.ts";
import type { App } from "./context.ts";
import { scopeOf } from "./scope.ts";

/** Life of a wait that is not renewed: how long one of a process that died still counts. */
const waitLifeMs = 15_000;
const renewEveryMs = waitLifeMs / 3;

/** What is waited for: a run, which may be about to be stored, and its session. */
export interface WaitTarget {
  readonly session: bigint;
  readonly runId: string;
}

/**
 * Runs `wait` while the calling session counts as waiting for the runs of all `targets` (S5.10). Refused at once with
 * wait_cycle, before `wait` is called and with nothing registered, when one of them is the caller itself (C6), or waits
 * for it already, directly or through others (C148): of waits that would close a cycle together the last to register is
 * refused, on whatever replica. Callers that are no session hold nothing up and wait freely.
 */
export async function holdWait<T>(
  app: App,
  principal: Principal,
  targets: readonly WaitTarget[],
  wait: () => Promise<T>,
): Promise<T> {
  if (principal.role !== "session" || targets.length === 0) return wait();
  for (const { session } of targets) refuseWaitOnOneself(principal, session);
  const waitIds = await registerWaits(app, principal, targets);
  const renewer = renewerOf(app);
  renewer.keep(waitIds);
  try {
    return await wait();
  } finally {
    renewer.forget(waitIds);
    await deleteWaits(app.db, waitIds).catch((err: unknown) =>
      app.log.warn({ err }, "a wait that is over expires by itself"),
    );
  }
}

/** Fails with wait_cycle when a session would wait for its own turn to end (C6). */
export function refuseWaitOnOneself(principal: Principal, target: bigint): void {
  if (principal.role !== "session" || principal.session !== target) return;
  throw new AppError({ kind: "wait_cycle", cycle: [principal.sessionKey, principal.sessionKey] });
}

/** In a short transaction of its own, one at a time in the whole service, so that two waits cannot miss each other. */
async function registerWaits(
  app: App,
  principal: SessionPrincipal,
  targets: readonly WaitTarget[],
): Promise<readonly string[]> {
  const { session: waiter } = principal;
  const waits = targets.map(({ session, runId }) => ({ waitId: app.ids.uuid(), session, runId }));
  const awaited = new Set(targets.map(({ session }) => session));
  await inTransaction(app.db, async (tx) => {
    await lockWaits(tx);
    const now = app.clock.now();
    const edges = await insertWaits(tx, { waiter, targets: waits, expiresAt: expiryFrom(now) }, now);
    for (const session of awaited) {
      const cycle = findWaitCycle(edges, waiter, session);
      if (cycle === undefined) continue;
      throw new AppError({ kind: "wait_cycle", cycle: await nameSessions(app, tx, principal, cycle) });
    }
  });
  return waits.map(({ waitId }) => waitId);
}

/** Keys of the sessions in a cycle; one the caller may not see goes without its name (S8.5). */
async function nameSessions(app: App, tx: Tx, principal: SessionPrincipal, ids: readonly bigint[]): Promise<string[]> {
  const scope = scopeOf(app, principal);
  const names: string[] = [];
  for (const id of ids) {
    const session = await findSessionById(tx, id);
    names.push(session !== undefined && isInScope(scope, session) ? session.sessionKey : "(another session)");
  }
  return names;
}

function expiryFrom(now: Date): Date {
  return new Date(now.getTime() + waitLifeMs);
}

const renewers = new WeakMap<App, WaitRenewer>();

function renewerOf(app: App): WaitRenewer {
  let renewer = renewers.get(app);
  if (!renewer) {
    renewer = new WaitRenewer(app);
    renewers.set(app, renewer);
  }
  return renewer;
}

/**
 * Renews all waits of this process in one statement. One that was not renewed in time, because the database was away, counts
 * again from then on without another look for cycles: a cycle missed that way ends at the waits' own limits.
 */
class WaitRenewer {
  readonly #app: App;
  readonly #waitIds = new Set<string>();
  #timer: NodeJS.Timeout | undefined;

  constructor(app: App) {
    this.#app = app;
  }

  keep(waitIds: readonly string[]): void {
    for (const waitId of waitIds) this.#waitIds.add(waitId);
    this.#timer ??= setInterval(() => void this.#renew(), renewEveryMs);
  }

  forget(waitIds: readonly string[]): void {
    for (const waitId of waitIds) this.#waitIds.delete(waitId);
    if (this.#waitIds.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  async #renew(): Promise<void> {
    const { db, clock, log } = this.#app;
    await renewWaits(db, [...this.#waitIds], expiryFrom(clock.now())).catch((err: unknown) =>
      log.warn({ err }, "waits could not be renewed"),
    );
  }
}
