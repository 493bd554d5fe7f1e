import type { Db, Tx } from "./database.ts";

/** What tells one message of a provider from all others. */
export interface ProviderMessage {
  readonly channel: string;
  /** Empty = the default account. */
  readonly accountId: string;
  readonly chatId: string;
  readonly providerMessageId: string;
}

/** What was answered when this message was first received: JSON. */
export async function findReceived(db: Db, message: ProviderMessage): Promise<string | undefined> {
  const row = await db
    .selectFrom("received_messages")
    .select("result")
    .where("channel", "=", message.channel)
    .where("account_id", "=", message.accountId)
    .where("chat_id", "=", message.chatId)
    .where("provider_message_id", "=", message.providerMessageId)
    .executeTakeFirst();
  return row?.result;
}

/**
 * Remembers a message together with its answer. False when another transaction has received it first; that one has
 * committed then.
 */
export async function insertReceived(tx: Tx, message: ProviderMessage, result: string, now: Date): Promise<boolean> {
  const inserted = await tx
    .insertInto("received_messages")
    .values({
      channel: message.channel,
      account_id: message.accountId,
      chat_id: message.chatId,
      provider_message_id: message.providerMessageId,
      result,
      received_at: now,
    })
    .onConflict((conflict) => conflict.doNothing())
    .executeTakeFirst();
  return inserted.numInsertedOrUpdatedRows === 1n;
}
