import type { Principal } from "../domain/principal.ts";
import { type Connector, findConnector, upsertConnector } from "../store/connectors.ts";
import { inTransaction } from "../store/transaction.ts";
import { auditAllowed } from "./audit.ts";
import { refuseForeignChannels } from "./connector-scope.ts";
import type { App } from "./context.ts";
import { replayed } from "./replay.ts";

/**
 * Makes a connector known with the channels it carries, replacing what it carried before; leases it holds stay its own. A repeat
 * of the request changes nothing. Fails with channel_not_served beyond the channels and accounts of a connector's credential,
 * also when the connector of that name carries others.
 */
export async function registerConnector(
  app: App,
  principal: Principal,
  requestId: string,
  connector: Connector,
): Promise<void> {
  refuseForeignChannels(principal, connector.channels);
  const request = { principal, method: "RegisterConnector", requestId, payload: connector };
  await inTransaction(app.db, (tx) =>
    replayed(app, tx, request, async () => {
      const known = await findConnector(tx, connector.connectorId);
      refuseForeignChannels(principal, known?.channels ?? []);
      await upsertConnector(tx, connector, app.clock.now());
      await auditAllowed(app, tx, request);
      return {};
    }),
  );
}
