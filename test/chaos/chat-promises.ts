import type { Indexed } from "./promises.ts";
import { answerOf } from "./work.ts";

/** What is promised of messages from a chat, and of what is carried there. */
export const chatPromises = {
  "a message from the chat became one run, however often it came": receivedOnce,
  "every message from the chat was answered there, with the agent's answer": answeredThere,
  "every delivery was posted once, and nothing else was": postedOnce,
} as const;

function* receivedOnce({ chat, requests }: Indexed): Generator<string> {
  const stored = new Map(requests.map(({ method, requestId, runId }) => [`${method} ${requestId}`, runId]));
  for (const { providerMessageId, runIds } of chat.asked) {
    const runId = stored.get(`ReceiveMessage ${providerMessageId}`) ?? "none";
    if (runIds.size !== 1 || !runIds.has(runId)) {
      yield `${providerMessageId} was accepted as ${[...runIds].join(", ")}; remembered is ${runId}`;
    }
  }
}

function* answeredThere({ chat, deliveries, exchanges }: Indexed): Generator<string> {
  const replies = deliveries.filter(({ kind }) => kind === "reply").map(({ text }) => text);
  const expected = chat.asked.map(({ text }) => answerOf(text));
  for (const text of expected) if (!replies.includes(text)) yield `nobody sent "${text}"`;
  if (replies.length !== expected.length) yield `${replies.length} replies to ${expected.length} messages`;
  for (const { exchangeId, kind, closed } of exchanges) {
    if (kind === "message" && !closed) yield `exchange ${exchangeId} with a person is open`;
  }
}

/** A connector that held a delivery for too long must not send it again; its outcome is unknown then. */
function* postedOnce({ chat, deliveries }: Indexed): Generator<string> {
  const posts = Map.groupBy(chat.posted, ({ deliveryId }) => deliveryId);
  for (const { deliveryId, state, text } of deliveries) {
    const own = posts.get(deliveryId) ?? [];
    if (chat.lost.has(deliveryId) && own.length <= 1) continue;
    if (own.length !== 1 || own[0]!.text !== text) yield `delivery ${deliveryId} was posted ${own.length} times`;
    if (state !== "delivered") yield `delivery ${deliveryId} was posted and is ${state}`;
  }
  const known = new Set(deliveries.map(({ deliveryId }) => deliveryId));
  for (const deliveryId of posts.keys())
    if (!known.has(deliveryId)) yield `posted was ${deliveryId}, which is not there`;
}
