import type { DeliveryOutcome } from "../domain/exchange/announce-outcome.ts";
import { step } from "../domain/exchange/step.ts";
import type { Tx } from "../store/database.ts";
import { lockExchange } from "../store/exchanges.ts";
import type { App } from "./context.ts";
import { saveExchange } from "./save-exchange.ts";

/**
 * Tells an exchange how its delivery ended, in the transaction that settles the delivery; again after a redrive. The
 * outcome only moves on (C32); an exchange that was pruned is nobody's to tell.
 */
export async function settleExchangeDelivery(
  app: Pick<App, "clock">,
  tx: Tx,
  { exchange: id, outcome }: { exchange: bigint; outcome: DeliveryOutcome },
): Promise<void> {
  const exchange = await lockExchange(tx, id);
  if (!exchange) return;
  const { state } = step(exchange.state, { type: "delivery_settled", outcome });
  if (state !== exchange.state) await saveExchange(app, tx, exchange, state);
}
