import { AppError } from "../domain/errors.ts";
import type { Principal } from "../domain/principal.ts";
import type { ConnectorChannel } from "../store/connectors.ts";
import type { DeliveryTarget } from "../store/delivery-leases.ts";

/** Whether a credential carries a channel. */
export function carriesChannel(principal: Principal, channel: string): boolean {
  if (principal.role !== "connector") return principal.role === "operator";
  return principal.channels.includes("*") || principal.channels.includes(channel);
}

/** Whether a credential carries an account; the default account, which has no id, only with "*". */
export function carriesAccount(principal: Principal, accountId: string): boolean {
  if (principal.role !== "connector") return principal.role === "operator";
  return principal.accounts.includes("*") || principal.accounts.includes(accountId);
}

/**
 * Holds a connector to the channels and accounts of its credential: what it names must be among them. Naming no account
 * means all those of the credential. Fails with channel_not_served.
 */
export function refuseForeignChannels(
  principal: Principal,
  channels: readonly Pick<ConnectorChannel, "channel" | "accountIds">[],
): void {
  for (const { channel, accountIds } of channels) {
    if (!carriesChannel(principal, channel)) throw new AppError({ kind: "channel_not_served", channel });
    const accountId = accountIds.find((each) => !carriesAccount(principal, each));
    if (accountId !== undefined) throw new AppError({ kind: "channel_not_served", channel, accountId });
  }
}

/** What a connector may claim: what it registered, as far as the credential of this call carries it. */
export function claimTargets(principal: Principal, channels: readonly ConnectorChannel[]): DeliveryTarget[] {
  return channels
    .filter(({ channel }) => carriesChannel(principal, channel))
    .flatMap(({ channel, accountIds, abilities }) => {
      const threads = abilities.includes("threads");
      const accounts = accountIds.length > 0 ? accountIds : accountsOf(principal);
      if (accounts === undefined) return [{ channel, threads }];
      return accounts
        .filter((accountId) => carriesAccount(principal, accountId))
        .map((accountId) => ({ channel, accountId, threads }));
    });
}

/** Accounts a credential is limited to; undefined = any. */
function accountsOf(principal: Principal): readonly string[] | undefined {
  if (principal.role !== "connector" || principal.accounts.includes("*")) return undefined;
  return principal.accounts;
}
