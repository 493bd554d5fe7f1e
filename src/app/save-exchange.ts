import type { ExchangeState } from "../domain/exchange/state.ts";
import type { Exchange } from "../domain/exchange.ts";
import type { Tx } from "../store/database.ts";
import { saveExchangeState } from "../store/exchanges.ts";
import { noteSpawnProgress } from "../store/spawns.ts";
import type { App } from "./context.ts";

/**
 * Writes where a locked exchange is now; the one place that does. A spawn learns with it that its first run ended, from
 * when on it does not count as active (S6.8), and that what became of its announce is certain, from when on it may be
 * archived (S6.13). Both times are those of the first time: a redrive moves neither.
 */
export async function saveExchange(
  app: Pick<App, "clock">,
  tx: Tx,
  { id }: Pick<Exchange, "id">,
  state: ExchangeState,
): Promise<void> {
  const now = app.clock.now();
  await saveExchangeState(tx, id, state, now);
  if (state.kind !== "spawn") return;
  const settled = state.phase === "closed" && state.announceOutcome !== "pending";
  await noteSpawnProgress(tx, id, { runEnded: state.phase !== "primary", settled }, now);
}
