import type { Principal } from "../domain/principal.ts";
import { drainInstance } from "../store/hosts.ts";
import { listHeldRuns } from "../store/run-leases.ts";
import { inTransaction } from "../store/transaction.ts";
import { auditAllowed } from "./audit.ts";
import type { App } from "./context.ts";
import { refuseForeignHost } from "./refuse-foreign-host.ts";
import { replayed } from "./replay.ts";

/**
 * Takes no more work for this instance: its parked claims and beats return at once, later claims come back empty. Runs it
 * holds go on. Returns the ids of those, as they are now. Another instance may take the host's place at any time. Fails with
 * host_not_served for a host with agents beyond those of the caller's credential.
 */
export async function drainHost(
  app: App,
  principal: Principal,
  requestId: string,
  { hostId, instanceId }: { hostId: string; instanceId: string },
): Promise<string[]> {
  await refuseForeignHost(app.db, principal, { hostId });
  const request = { principal, method: "DrainHost", requestId, payload: { hostId, instanceId } };
  await inTransaction(app.db, (tx) =>
    replayed(app, tx, request, async () => {
      await drainInstance(tx, hostId, instanceId, app.clock.now());
      await auditAllowed(app, tx, request);
      return {};
    }),
  );
  app.wakeups.publish([`host:${hostId}`]);
  return listHeldRuns(app.db, hostId, instanceId);
}
