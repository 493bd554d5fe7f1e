import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { type Client, createClient } from "@connectrpc/connect";
import { type ClaimedRun, HostService } from "#gen/agentsessions/v1/host_service_pb.js";
import { agentSessionsOn } from "../client/agent-sessions.ts";
import { type Connection, createConnection } from "../client/connection.ts";
import { CutBudget } from "../client/cut-budget.ts";
import { SessionCleaner } from "./attachments/session-cleaner.ts";
import { Workspaces } from "./attachments/workspaces.ts";
import { claimWhileOpen } from "./claim-loop.ts";
import { executeRun } from "./execute-run.ts";
import { HeldRun } from "./held-run.ts";
import { LeaseKeeper } from "./lease-keeper.ts";
import { lendWhileWaiting, type Place } from "./lend-place.ts";
import type { AgentHostOptions, HostIdentity, HostLog } from "./options.ts";
import type { AgentFunction } from "./turn.ts";

/** A process's part in executing runs. Starts once, ends once. */
export interface AgentHost {
  /** Identity of this start: UUID. */
  readonly instanceId: string;
  /** Runs being executed now. */
  readonly activeRuns: number;
  /** Registers the host and starts to claim. Waits up to two minutes for a service that is away; rejects when it refuses. */
  start(): Promise<void>;
  /**
   * Takes no more work, finishes the turns it holds, and ends. After `timeoutMs` (default: none) what is left is stopped as by `stop`.
   * Hands nothing back half-done (C152).
   */
  drain(options?: { timeoutMs?: number }): Promise<void>;
  /**
   * Ends now: aborts every turn and waits up to five seconds for the agents. A run of which nothing was stored is handed back at
   * once; any other is left to its lease, after which the service's redelivery policy decides.
   */
  stop(): Promise<void>;
  /**
   * Removes the files of deleted sessions from the known workspaces now; with a `workspace` the host does so when it starts and every
   * ten minutes. Returns how many directories were cleaned. Files that agents put beside them stay. Rejects before the host has started:
   * the service must have admitted it for its agents, since it hides the sessions of others as it hides those that are gone.
   */
  cleanWorkspaces(): Promise<number>;
}

/** Two levels up from the sources as from the built files. */
const { version } = createRequire(import.meta.url)("../../package.json") as { version: string };
const CLIENT = { sdkName: "agentsessions/host", sdkVersion: version, language: "typescript" };
const DEFAULT_CONCURRENT_RUNS = 10;
const MAX_CONCURRENT_RUNS = 1_000;
const STOP_GRACE_MS = 5_000;
/** A drained service ends a parked claim at once; one that does not answer is not waited for much longer. */
const CLAIM_GRACE_MS = 5_000;

/** Creates an agent host. A crash needs no care: leases run out and other hosts take over. */
export function createAgentHost(options: AgentHostOptions): AgentHost {
  return new ClaimingHost(options, createConnection(options.baseUrl, options.protocol));
}

class ClaimingHost implements AgentHost {
  readonly #connection: Connection;
  readonly #hosts: Client<typeof HostService>;
  readonly #identity: HostIdentity;
  readonly #agents: ReadonlyMap<string, AgentFunction>;
  readonly #places: number;
  readonly #log: HostLog;
  readonly #keeper: LeaseKeeper;
  readonly #workspaces: Workspaces;
  readonly #cleaner: SessionCleaner;
  readonly #active = new Map<HeldRun, Promise<void>>();
  /** Of these, the turns that wait for other runs. */
  readonly #lent = new Set<HeldRun>();
  readonly #closing = new AbortController();
  readonly #abandoned = new AbortController();
  #claiming: Promise<void> | undefined;
  #cleaning: Promise<void> | undefined;
  #placeFreed = Promise.withResolvers<void>();
  #ending: Promise<void> | undefined;
  #stopping = false;

  constructor(options: AgentHostOptions, connection: Connection) {
    this.#connection = connection;
    this.#agents = new Map(Object.entries(options.agents).map(([agentId, agent]) => [agentId.toLowerCase(), agent]));
    this.#places = options.maxConcurrentRuns ?? DEFAULT_CONCURRENT_RUNS;
    this.#log = options.log ?? { info: () => {}, warn: () => {} };
    if (this.#agents.size === 0) throw new RangeError("agents: at least one agent is needed");
    if (!Number.isInteger(this.#places) || this.#places < 1 || this.#places > MAX_CONCURRENT_RUNS) {
      throw new RangeError(`maxConcurrentRuns: expected 1 to ${MAX_CONCURRENT_RUNS}, got ${this.#places}`);
    }
    this.#identity = { hostId: options.hostId, instanceId: randomUUID() };
    this.#hosts = createClient(HostService, connection.transport({ token: options.token, retry: false }));
    this.#keeper = new LeaseKeeper(this.#hosts, this.#identity, this.#log);
    this.#workspaces = new Workspaces(options);
    this.#cleaner = new SessionCleaner({
      sessions: agentSessionsOn(connection, { token: options.token }).sessions,
      agentIds: new Set(this.#agents.keys()),
      workspaces: this.#workspaces,
      log: this.#log,
      closing: this.#closing.signal,
    });
  }

  get instanceId(): string {
    return this.#identity.instanceId;
  }

  get activeRuns(): number {
    return this.#active.size;
  }

  async start(): Promise<void> {
    if (this.#claiming || this.#closing.signal.aborted) throw new Error("an agent host starts once");
    await this.#register();
    if (this.#closing.signal.aborted) return;
    this.#cleaning = this.#cleaner.cleanWhileOpen();
    this.#claiming = claimWhileOpen({
      hosts: this.#hosts,
      identity: this.#identity,
      agentIds: [...this.#agents.keys()],
      log: this.#log,
      freePlaces: () => this.#freePlaces(),
      take: (claimed) => this.#take(claimed),
      closing: this.#closing.signal,
      abandoned: this.#abandoned.signal,
    });
  }

  async drain(options: { timeoutMs?: number } = {}): Promise<void> {
    const ending = this.#endOnce();
    if (options.timeoutMs === undefined) return ending;
    if (!(await settlesWithin(ending, options.timeoutMs))) await this.stop();
  }

  async stop(): Promise<void> {
    this.#stopping = true;
    for (const run of this.#active.keys()) stopTurn(run);
    await settlesWithin(this.#endOnce(), STOP_GRACE_MS);
    this.#abandoned.abort();
    for (const run of this.#active.keys()) {
      run.lose("lease_lost", "the host was stopped");
      this.#keeper.forget(run);
    }
    this.#connection.close();
  }

  async cleanWorkspaces(): Promise<number> {
    if (!this.#claiming) throw new Error("an agent host cleans workspaces after its start");
    return this.#cleaner.clean();
  }

  #endOnce(): Promise<void> {
    this.#ending ??= this.#end();
    return this.#ending;
  }

  /** Ends claiming without stranding runs that are on their way here, then waits for the turns. */
  async #end(): Promise<void> {
    this.#closing.abort();
    this.#placeFreed.resolve();
    if (this.#claiming) {
      await this.#announceDrain();
      await settlesWithin(this.#claiming, CLAIM_GRACE_MS);
      this.#abandoned.abort();
      await this.#claiming;
    }
    await Promise.all(this.#active.values());
    await this.#cleaning;
    this.#connection.close();
  }

  async #register(): Promise<void> {
    const budget = new CutBudget(undefined, this.#closing.signal);
    const requestId = randomUUID();
    for (;;) {
      try {
        const agents = [...this.#agents.keys()].map((agentId) => ({ agentId }));
        await this.#hosts.registerHost({ ...this.#identity, requestId, agents, client: CLIENT });
        return;
      } catch (error) {
        this.#log.warn({ err: error }, "registration failed");
        await budget.pauseAfter(error);
      }
    }
  }

  /** Best effort: without it the host still claims no more, and a parked claim is given up after a while. */
  async #announceDrain(): Promise<void> {
    try {
      await this.#hosts.drainHost({ ...this.#identity, requestId: randomUUID() }, { timeoutMs: CLAIM_GRACE_MS });
    } catch (error) {
      this.#log.warn({ err: error }, "the service did not take note of the drain");
    }
  }

  async #freePlaces(): Promise<number> {
    while (this.#occupied >= this.#places && !this.#closing.signal.aborted) {
      this.#placeFreed = Promise.withResolvers<void>();
      await this.#placeFreed.promise;
    }
    return this.#places - this.#occupied;
  }

  get #occupied(): number {
    return this.#active.size - this.#lent.size;
  }

  /** A turn that is over has no place to lend: a wait it left behind changes nothing. */
  #placeOf(run: HeldRun): Place {
    return {
      lend: () => {
        if (!this.#active.has(run)) return;
        this.#lent.add(run);
        this.#placeFreed.resolve();
      },
      takeBack: () => this.#lent.delete(run),
    };
  }

  #take(claimed: ClaimedRun): void {
    const run = new HeldRun(claimed);
    const agent = this.#agents.get(claimed.run?.agentId ?? "");
    if (!agent || this.#isActive(claimed)) {
      run.settle();
      return;
    }
    const tools = agentSessionsOn(this.#connection, { token: claimed.runToken, signal: run.turnSignal });
    const sessions = lendWhileWaiting(tools, this.#placeOf(run));
    const execution = executeRun({
      hosts: this.#hosts,
      claimed,
      run,
      agent,
      sessions,
      workspaces: this.#workspaces,
      log: this.#log,
    }).finally(() => {
      this.#keeper.forget(run);
      this.#active.delete(run);
      this.#lent.delete(run);
      this.#placeFreed.resolve();
    });
    this.#active.set(run, execution);
    this.#keeper.keep(run);
    if (this.#stopping) stopTurn(run);
  }

  /** A repeated claim returns leases this process may hold already. */
  #isActive(claimed: ClaimedRun): boolean {
    return [...this.#active.keys()].some((run) => run.leaseToken === claimed.leaseToken);
  }
}

function stopTurn(run: HeldRun): void {
  run.cancel("host_stopped", "the host was stopped");
}

async function settlesWithin(work: Promise<void>, ms: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => {
    timer = setTimeout(() => resolve(false), ms);
  });
  try {
    return await Promise.race([work.then(() => true), late]);
  } finally {
    clearTimeout(timer);
  }
}
