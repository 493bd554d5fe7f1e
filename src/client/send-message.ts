import { randomUUID } from "node:crypto";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import type { Client } from "@connectrpc/connect";
import {
  type SendMessageResponse,
  SendOutcome,
  type SessionService,
} from "#gen/agentsessions/v1/session_service_pb.js";
import { CutBudget } from "./cut-budget.ts";
import { cutError } from "./errors.ts";
import { WAIT_MARGIN_MS } from "./wait-run.ts";

export interface SendMessageOptions {
  /** Session key or session_id; "main" and "current" for a caller that acts as a session. */
  readonly session: string;
  /** The text, at most 1 MiB of UTF-8. */
  readonly message: string;
  /** How long to wait for the run's end. Default 30 s; 0 = do not wait; at most one hour. It bounds the wait, not the run. */
  readonly waitMs?: number | undefined;
  /** Limit of the run's execution. Default the agent's setting; 0 = none. */
  readonly runTimeoutMs?: number | undefined;
  /** Makes a repeat by the caller safe. Default a new UUID, which makes repeats within this call safe. */
  readonly requestId?: string | undefined;
  /** Ends the wait, which then throws; the message, if stored, and its run stay. */
  readonly signal?: AbortSignal | undefined;
  /** How long to go on without an answer from the service before giving up. Default two minutes. */
  readonly budgetMs?: number | undefined;
}

const DEFAULT_WAIT_MS = 30_000;

export async function sendMessage(
  sessions: Client<typeof SessionService>,
  options: SendMessageOptions,
): Promise<SendMessageResponse> {
  const budget = new CutBudget(options.budgetMs, options.signal);
  const requestId = options.requestId ?? randomUUID();
  const wantedMs = options.waitMs ?? DEFAULT_WAIT_MS;
  const endAt = performance.now() + wantedMs;
  for (;;) {
    // A repeat after the whole wait still asks to wait a little: 0 would mean that nobody waited.
    const waitMs = Math.max(Math.min(wantedMs, 1), endAt - performance.now());
    let cut: unknown = cutError("the wait for the answer was cut short");
    try {
      const response = await sessions.sendMessage(
        {
          requestId,
          session: options.session,
          message: options.message,
          waitTimeout: durationFromMs(Math.ceil(waitMs)),
          ...(options.runTimeoutMs === undefined ? {} : { runTimeout: durationFromMs(options.runTimeoutMs) }),
        },
        { timeoutMs: waitMs + WAIT_MARGIN_MS, ...(options.signal ? { signal: options.signal } : {}) },
      );
      // A draining server answers early: the run is stored, ask again for what is left of the wait.
      if (response.outcome !== SendOutcome.EXPIRED || endAt - performance.now() < 1_000) return response;
    } catch (error) {
      cut = error;
    }
    await budget.pauseAfter(cut);
  }
}
