import type { App } from "../app/context.ts";
import { expireDeliveries, listLateDeliveries } from "../app/expire-deliveries.ts";
import { mayExpireLeases, noteHealthyTick, type ReaperHealth } from "../domain/reaper-health.ts";
import { runLoop } from "./loop.ts";

/** A break between two ticks that connectors would hardly have noticed. */
const toleratedGapMs = 5000;

/** Takes deliveries back from lost connectors until the signal aborts. */
export function runDeliveries(app: App, signal: AbortSignal): Promise<void> {
  return runLoop({ name: "deliveries", signal, log: app.log }, deliveryReaper(app));
}

/**
 * One tick. After its start, after a failed tick and after a break it lets a whole lease pass before it expires any: while
 * the service or its database was away no connector could answer, and an expired lease may leave a delivery in doubt.
 */
export function deliveryReaper(app: App): () => Promise<void> {
  let health: ReaperHealth | undefined;
  return async () => {
    try {
      const late = await listLateDeliveries(app);
      health = noteHealthyTick(health, app.clock.now(), toleratedGapMs);
      if (mayExpireLeases(health, app.config.deliveries.leaseSeconds * 1000)) await expireDeliveries(app, late);
    } catch (error) {
      health = undefined;
      throw error;
    }
  };
}
