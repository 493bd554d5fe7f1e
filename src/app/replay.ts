import { createHash } from "node:crypto";
import { AppError } from "../domain/errors.ts";
import { callerName, type Principal } from "../domain/principal.ts";
import type { Tx } from "../store/database.ts";
import { findRequest, type RequestName, reserveRequest, saveRequest } from "../store/requests.ts";
import type { App } from "./context.ts";

/** A mutation a caller may repeat. */
export interface RepeatableRequest {
  readonly principal: Principal;
  /** RPC name, for example "SendMessage". */
  readonly method: string;
  readonly requestId: string;
  /** Everything that makes the request what it is, as JSON; another payload under the same id is refused. */
  readonly payload: unknown;
}

/** The result of a mutation, and whether it is that of an earlier call. */
export interface Replayed<R> {
  readonly result: R;
  readonly deduplicated: boolean;
}

/**
 * Runs a mutation once per request id of a caller (S9.5); a repeat gets the first result without running anything.
 * The id is taken before anything else is written: of two replicas that are given the same id at once, one runs and the
 * other waits for its commit (C14). A mutation that fails takes its id back with it.
 * Fails with request_id_reused when the id was used with another payload.
 */
export async function replayed<R>(
  app: App,
  tx: Tx,
  request: RepeatableRequest,
  run: () => Promise<R>,
): Promise<Replayed<R>> {
  const first = await takeRequest<R>(app, tx, request, "");
  if (first !== undefined) return first;
  const result = await run();
  await saveRequest(tx, nameOf(request), JSON.stringify(result));
  return { result, deduplicated: false };
}

/** Like replayed, for a mutation whose result is known before it runs: it is stored along with the id, in one statement. */
export async function replayedAs<R>(
  app: App,
  tx: Tx,
  request: RepeatableRequest,
  result: R,
  run: () => Promise<void>,
): Promise<Replayed<R>> {
  const first = await takeRequest<R>(app, tx, request, JSON.stringify(result));
  if (first !== undefined) return first;
  await run();
  return { result, deduplicated: false };
}

/** Whether the request id was used before, in a call that succeeded. */
export async function isRepeat(app: Pick<App, "db">, request: RepeatableRequest): Promise<boolean> {
  return (await findRequest(app.db, nameOf(request))) !== undefined;
}

/** Takes the request id, or returns what its first use answered. */
async function takeRequest<R>(
  app: App,
  tx: Tx,
  request: RepeatableRequest,
  answer: string,
): Promise<Replayed<R> | undefined> {
  const name = nameOf(request);
  const payloadHash = hashOf(request.payload);
  if (await reserveRequest(tx, name, { payloadHash, result: answer }, app.clock.now())) return undefined;
  const first = await findRequest(tx, name);
  if (first === undefined) throw new AppError({ kind: "conflict" });
  const { method, requestId } = request;
  if (!first.payloadHash.equals(payloadHash)) throw new AppError({ kind: "request_id_reused", requestId, method });
  return { result: JSON.parse(first.result) as R, deduplicated: true };
}

function nameOf({ principal, method, requestId }: RepeatableRequest): RequestName {
  return { caller: callerName(principal), method, requestId };
}

function hashOf(payload: unknown): Buffer {
  return createHash("sha256")
    .update(JSON.stringify(payload, sortedMembers) ?? "null")
    .digest();
}

/** Objects with the same members are the same payload whatever their order. */
function sortedMembers(_name: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)));
}
