import type { Principal } from "../domain/principal.ts";
import { type HostRegistration, upsertHost } from "../store/hosts.ts";
import { inTransaction } from "../store/transaction.ts";
import { auditAllowed } from "./audit.ts";
import type { App } from "./context.ts";
import { refuseForeignHost } from "./refuse-foreign-host.ts";
import { replayed } from "./replay.ts";

/**
 * Makes this process the current instance of its host (C149). The instance it replaces is told to drain with its next
 * claim or beat and claims nothing any more; runs it holds stay its own until their leases end. Repeating the request
 * with its request id changes nothing, also when the host was replaced in the meantime. Fails with agent_not_served and
 * host_not_served beyond the agents of a host's credential.
 */
export async function registerHost(
  app: App,
  principal: Principal,
  requestId: string,
  host: HostRegistration,
): Promise<void> {
  await refuseForeignHost(app.db, principal, host);
  const request = { principal, method: "RegisterHost", requestId, payload: host };
  await inTransaction(app.db, (tx) =>
    replayed(app, tx, request, async () => {
      await upsertHost(tx, host, app.clock.now());
      await auditAllowed(app, tx, request);
      return {};
    }),
  );
  app.wakeups.publish([`host:${host.hostId}`]);
}
