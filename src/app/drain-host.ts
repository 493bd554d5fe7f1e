import type { Principal } from "../domain/principal.ts";
import { drainInstance } from "../store/hosts.ts";
import { listHeldRuns } from "../store/run-leases.ts";
import { inTransaction } from "../store/transaction.ts";
import type { App } from "./context.ts";
import { replayed } from "./replay.ts";

/**
 * Takes no more work for this instance: its parked claims and beats return at once, later claims come back empty. Runs it
 * holds go on. Returns the ids of those, as they are now. Another instance may take the host's place at any time.
 */
export async function drainHost(
  app: App,
  principal: Principal,
  requestId: string,
  { hostId, instanceId }: { hostId: string; instanceId: string },
): Promise<string[]> {
  await inTransaction(app.db, (tx) =>
    replayed(app, tx, { principal, method: "DrainHost", requestId, payload: { hostId, instanceId } }, async () => {
      await drainInstance(tx, hostId, instanceId, app.clock.now());
      return {};
    }),
  );
  app.wakeups.publish([`host:${hostId}`]);
  return listHeldRuns(app.db, hostId, instanceId);
}
