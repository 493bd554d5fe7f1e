import { setTimeout as sleep } from "node:timers/promises";
import { type Client, Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnection } from "../../src/client/connection.ts";
import { isCut } from "../../src/client/errors.ts";
import {
  type AgentSessions,
  ChannelService,
  createAgentSessions,
  HostService,
  RunService,
  SessionService,
} from "../../src/client/index.ts";
import type { Random } from "./random.ts";

/** One server, as a caller without any patience of its own sees it. */
export interface Replica {
  readonly sessions: Client<typeof SessionService>;
  readonly runs: Client<typeof RunService>;
  readonly hosts: Client<typeof HostService>;
  readonly channels: Client<typeof ChannelService>;
  /** The shipped client, with its patience. */
  readonly patient: AgentSessions;
  close(): void;
}

export function openReplica(baseUrl: string): Replica {
  const connection = createConnection(baseUrl);
  const transport = connection.transport({ retry: false });
  const patient = createAgentSessions({ baseUrl });
  return {
    sessions: createClient(SessionService, transport),
    runs: createClient(RunService, transport),
    hosts: createClient(HostService, transport),
    channels: createClient(ChannelService, transport),
    patient,
    close() {
      patient.close();
      connection.close();
    },
  };
}

/** A call was not answered for longer than chaos lasts. */
const patienceMs = 90_000;

/**
 * Makes a call, each try at a replica drawn anew, until one answers. Throws what the service refuses, and the last error when
 * no replica answers any more.
 */
export async function askAnyone<T>(
  replicas: readonly Replica[],
  random: Random,
  call: (replica: Replica) => Promise<T>,
  onRetry: () => void = () => {},
): Promise<T> {
  const limit = performance.now() + patienceMs;
  for (;;) {
    try {
      return await call(random.pick(replicas));
    } catch (error) {
      if (!mayRepeat(error) || performance.now() > limit) throw error;
      onRetry();
      await sleep(random.between(50, 300));
    }
  }
}

/** ABORTED: what the service says of a transaction that lost to others too often. */
function mayRepeat(error: unknown): boolean {
  return isCut(error) || (error instanceof ConnectError && error.code === Code.Aborted);
}
