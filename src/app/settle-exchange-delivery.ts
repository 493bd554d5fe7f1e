import type { DeliveryOutcome } from "../domain/exchange/announce-outcome.ts";
import { step } from "../domain/exchange/step.ts";
import type { Exchange } from "../domain/exchange.ts";
import type { Tx } from "../store/database.ts";
import type { App } from "./context.ts";
import { saveExchange } from "./save-exchange.ts";

/**
 * Tells a locked exchange how its delivery ended, in the transaction that settles the delivery; again after a redrive. The
 * outcome only moves on (C32).
 */
export async function settleExchangeDelivery(
  app: Pick<App, "clock">,
  tx: Tx,
  exchange: Exchange,
  outcome: DeliveryOutcome,
): Promise<void> {
  const { state } = step(exchange.state, { type: "delivery_settled", outcome });
  if (state !== exchange.state) await saveExchange(app, tx, exchange, state);
}
