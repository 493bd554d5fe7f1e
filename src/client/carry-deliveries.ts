import { randomUUID } from "node:crypto";
import { type Client, Code, ConnectError } from "@connectrpc/connect";
import type { ChannelService, ClaimedDelivery } from "#gen/agentsessions/v1/channel_service_pb.js";
import { type Delivery, Delivery_Kind } from "#gen/agentsessions/v1/delivery_pb.js";
import { type Backoff, backoffMs, pause } from "./backoff.ts";
import { reasonOf } from "./errors.ts";

export interface CarryOptions {
  /** Name of the connector, stable across restarts. */
  readonly connectorId: string;
  readonly channels: readonly {
    readonly channel: string;
    /** Accounts of yours on it; default any. */
    readonly accountIds?: readonly string[];
    /** Default: "threads" with `bindThread`, else none. */
    readonly abilities?: readonly string[];
  }[];
  /**
   * Posts a text to its chat, also the notice that a thread has ended (KIND_UNBIND_THREAD: close it, too); returns the provider's id of the message when there is one. Throw NotPosted when it certainly
   * did not arrive. Any other error leaves the delivery UNKNOWN: it is not sent again by itself, since it may have arrived.
   */
  readonly post: (delivery: Delivery) => Promise<string | undefined>;
  /**
   * Opens a thread titled `text` in the chat of the route, for a spawned session; what is said in it must come in under the
   * thread and chat returned. Throws as `post` does. Without it this connector is never asked for threads.
   */
  readonly bindThread?: (delivery: Delivery) => Promise<OpenedThread>;
  /** Deliveries carried at once, each to another chat; default 10, at most 100. */
  readonly maxDeliveries?: number;
  /** Ends the work; deliveries under way are finished first. */
  readonly signal: AbortSignal;
  /** Hears of cuts, and of what could not be told to the service. Default: nobody does. */
  readonly onError?: (error: unknown) => void;
}

export interface OpenedThread {
  /** `thread_id` of ReceiveMessage. */
  readonly threadId: string;
  /** `chat_id` of ReceiveMessage; default the chat of the route. */
  readonly chatId?: string;
  /** Provider's id of a message it posted with it. */
  readonly providerMessageId?: string;
}

/** A text that certainly did not arrive in its chat. */
export class NotPosted extends Error {
  /** Whether a later attempt can help; false makes it a dead letter at once. */
  readonly retryable: boolean;
  /** Least time before the next attempt, as the provider says it. */
  readonly retryAfterMs: number | undefined;
  constructor(
    message: string,
    { retryable = true, retryAfterMs }: { retryable?: boolean; retryAfterMs?: number } = {},
  ) {
    super(message);
    this.name = "NotPosted";
    this.retryable = retryable;
    this.retryAfterMs = retryAfterMs;
  }
}

const BACKOFF: Backoff = { firstMs: 200, maxMs: 5_000 };
const CLAIM_WAIT_SECONDS = 20;
const CLAIM_TIMEOUT_MS = 30_000;

/**
 * The work of a channel connector: registers, then claims deliveries and posts them until the signal aborts. Each is marked
 * with BeginDelivery right before it is posted, so that a connector that dies never leads to a second message in a chat.
 * Goes on after cuts and restarts of the service. Rejects when the service refuses the connector.
 */
export async function carryDeliveries(channels: Client<typeof ChannelService>, options: CarryOptions): Promise<void> {
  const { signal, connectorId, maxDeliveries = 10 } = options;
  let failures = 0;
  let registered = false;
  while (!signal.aborted) {
    try {
      if (!registered) await register(channels, options);
      registered = true;
      const request = { requestId: randomUUID(), connectorId, maxDeliveries, waitTimeout };
      const { deliveries, draining } = await channels.claimDeliveries(request, { signal, timeoutMs: CLAIM_TIMEOUT_MS });
      await Promise.all(deliveries.map((claimed) => carry(channels, options, claimed)));
      failures = draining ? failures + 1 : 0;
    } catch (error) {
      if (signal.aborted) return;
      if (isRefusal(error)) throw error;
      registered &&= reasonOf(error) !== "CONNECTOR_NOT_FOUND";
      options.onError?.(error);
      failures += 1;
    }
    if (failures > 0) await pause(backoffMs(BACKOFF, failures), signal);
  }
}

const REFUSALS: ReadonlySet<Code> = new Set([
  Code.InvalidArgument,
  Code.PermissionDenied,
  Code.Unauthenticated,
  Code.Unimplemented,
]);

/** What no repeat changes: the connector is set up wrongly, or may not do this. */
function isRefusal(error: unknown): boolean {
  return error instanceof ConnectError && REFUSALS.has(error.code);
}

const waitTimeout = { seconds: BigInt(CLAIM_WAIT_SECONDS) };

async function register(channels: Client<typeof ChannelService>, options: CarryOptions): Promise<void> {
  const { connectorId, signal, bindThread } = options;
  const able = bindThread ? ["threads"] : [];
  const carried = options.channels.map(({ channel, accountIds = [], abilities = able }) => ({
    channel,
    accountIds: [...accountIds],
    abilities: [...abilities],
  }));
  await channels.registerConnector({ requestId: randomUUID(), connectorId, channels: carried }, { signal });
}

async function carry(
  channels: Client<typeof ChannelService>,
  options: CarryOptions,
  { delivery, leaseToken }: ClaimedDelivery,
): Promise<void> {
  const held = { deliveryId: delivery!.deliveryId, leaseToken };
  try {
    const { maySend } = await channels.beginDelivery(held);
    if (maySend) await postAndTell(channels, options, delivery!, held);
  } catch (error) {
    options.onError?.(error);
  }
}

async function postAndTell(
  channels: Client<typeof ChannelService>,
  options: CarryOptions,
  delivery: Delivery,
  held: { deliveryId: string; leaseToken: string },
): Promise<void> {
  let done: Done;
  try {
    done = await carryOut(options, delivery);
  } catch (error) {
    await tellFailure(channels, held, error);
    return;
  }
  await channels.ackDelivery({ ...held, ...done });
}

interface Done {
  readonly providerMessageId: string;
  readonly boundThread?: { readonly threadId: string; readonly chatId: string };
}

async function carryOut({ post, bindThread }: CarryOptions, delivery: Delivery): Promise<Done> {
  if (delivery.kind !== Delivery_Kind.BIND_THREAD) return { providerMessageId: (await post(delivery)) ?? "" };
  if (bindThread === undefined) throw new NotPosted("this connector opens no threads", { retryable: false });
  const { threadId, chatId = "", providerMessageId = "" } = await bindThread(delivery);
  return { providerMessageId, boundThread: { threadId, chatId } };
}

async function tellFailure(
  channels: Client<typeof ChannelService>,
  held: { deliveryId: string; leaseToken: string },
  error: unknown,
): Promise<void> {
  const message = (error instanceof Error ? error.message : String(error)).slice(0, 1000) || "no reason given";
  if (error instanceof NotPosted && !error.retryable) {
    await channels.rejectDelivery({ ...held, message });
    return;
  }
  const retryAfterMs = error instanceof NotPosted ? error.retryAfterMs : undefined;
  const retryAfter =
    retryAfterMs === undefined ? {} : { retryAfter: { seconds: BigInt(Math.ceil(retryAfterMs / 1000)) } };
  await channels.nackDelivery({ ...held, message, mayHaveArrived: !(error instanceof NotPosted), ...retryAfter });
}
