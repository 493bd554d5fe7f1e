import { hostSilenceMs } from "../domain/host-silence.ts";
import type { Principal } from "../domain/principal.ts";
import type { Run } from "../domain/run.ts";
import { admitInstance, findHostStanding } from "../store/hosts.ts";
import { type Claim, claimReadyRuns, findClaimedRuns } from "../store/run-queue.ts";
import { claimDeskOf } from "./claim-desk.ts";
import { type ClaimedRun, toClaimedRuns } from "./claimed-run.ts";
import type { App } from "./context.ts";
import { Doorbell, ringOnAbort } from "./doorbell.ts";
import { hashCredential } from "./hash-credential.ts";
import { leaseMs } from "./held-run.ts";
import { refuseForeignHost } from "./refuse-foreign-host.ts";
import { releaseRun } from "./release-run.ts";
import { runTokenOf } from "./run-token.ts";

export interface ClaimRequest {
  readonly principal: Principal;
  readonly requestId: string;
  readonly hostId: string;
  readonly instanceId: string;
  readonly agentIds: readonly string[];
  readonly maxRuns: number;
  /** How long to wait for work; 0 = look once. */
  readonly waitMs: number;
  /** Aborts when the caller is gone. */
  readonly signal?: AbortSignal;
}

export interface ClaimAnswer {
  readonly runs: readonly ClaimedRun[];
  /** Whether this process stops, or this instance was drained or replaced (C149). */
  readonly draining: boolean;
}

/**
 * Claims ready runs for a host, waiting for work when there is none: at most one per session, oldest first, never more
 * than asked for. An empty answer is normal. A claim whose answer was lost gets the same live leases for the same request
 * id; when nobody asks again, the runs go back to the queue at the start deadline. A host that was never registered is
 * registered by its claim. An instance that was drained or replaced is told so and gets nothing. Fails with
 * agent_not_served and host_not_served beyond the agents of a host's credential.
 */
export async function claimRuns(app: App, request: ClaimRequest): Promise<ClaimAnswer> {
  await refuseForeignHost(app.db, request.principal, request);
  const now = app.clock.now();
  const granted = await findClaimedRuns(app.db, request, now);
  if (granted.length > 0) return { runs: await toClaimedRuns(app, granted), draining: false };
  if (app.draining.aborted) return { runs: [], draining: true };
  const { mayClaim } = await admitInstance(app.db, request, new Date(now.getTime() - hostSilenceMs), now);
  if (!mayClaim) return { runs: [], draining: true };
  const runs = await handBackOfGone(app, request, await claimOrPark(app, request));
  if (runs.length > 0) return { runs: await toClaimedRuns(app, runs), draining: false };
  const standing = await findHostStanding(app.db, request.hostId, request.instanceId);
  return { runs: [], draining: app.draining.aborted || !standing.mayClaim };
}

/** Looks for work now and at every wake-up, until there is some, the time is up, the caller left, or the instance was drained. */
async function claimOrPark(app: App, request: ClaimRequest): Promise<Run[]> {
  const desk = claimDeskOf(app);
  const bell = new Doorbell();
  const park = new Parking(app, request, bell);
  const seat = desk.takeSeat(request.agentIds, bell);
  try {
    while (!request.signal?.aborted && !app.draining.aborted) {
      const last = park.over;
      seat.look();
      const runs = await claimReadyRuns(app.db, toClaim(app, request), app.clock.now());
      if (runs.length === request.maxRuns) desk.passOn(seat.agentIds);
      if (runs.length > 0 || last || (await park.mustLeave())) return runs;
      await seat.sleep();
    }
    return [];
  } finally {
    seat.leave();
    park.end();
  }
}

/** A caller that left while its claim was under way never hears of it: others need not wait for the start deadline. */
async function handBackOfGone(app: App, request: ClaimRequest, runs: readonly Run[]): Promise<readonly Run[]> {
  if (!request.signal?.aborted) return runs;
  for (const { runId, leaseToken = "" } of runs) await releaseRun(app, { runId, leaseToken });
  return [];
}

function toClaim(app: App, request: ClaimRequest): Claim {
  const leases = Array.from({ length: request.maxRuns }, () => {
    const leaseToken = app.ids.secret();
    return { leaseToken, runTokenHash: hashCredential(runTokenOf(leaseToken)) };
  });
  const { requestId, hostId, instanceId, agentIds } = request;
  const startDeadlineMs = app.config.runs.startDeadlineSeconds * 1000;
  return { requestId, hostId, instanceId, agentIds, leases, leaseMs: leaseMs(app), startDeadlineMs };
}

/** What ends the wait of a parked claim. Rings the bell for each reason. */
class Parking {
  over: boolean;
  #hostChanged = false;
  readonly #app: App;
  readonly #request: ClaimRequest;
  readonly #releases: (() => void)[];

  constructor(app: App, request: ClaimRequest, bell: Doorbell) {
    this.#app = app;
    this.#request = request;
    this.over = request.waitMs <= 0;
    const timer = setTimeout(() => {
      this.over = true;
      bell.ring();
    }, request.waitMs);
    const unsubscribe = app.wakeups.subscribe([`host:${request.hostId}`], () => {
      this.#hostChanged = true;
      bell.ring();
    });
    const signals = request.signal ? [app.draining, request.signal] : [app.draining];
    this.#releases = [() => clearTimeout(timer), unsubscribe, ringOnAbort(bell, signals)];
  }

  /** Whether the instance was drained or replaced; asks only after a hint about its host. */
  async mustLeave(): Promise<boolean> {
    if (!this.#hostChanged) return false;
    this.#hostChanged = false;
    const { hostId, instanceId } = this.#request;
    return !(await findHostStanding(this.#app.db, hostId, instanceId)).mayClaim;
  }

  end(): void {
    for (const release of this.#releases) release();
  }
}
