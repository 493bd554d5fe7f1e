import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  type SpawnInfoSchema,
  type ThreadBindingSchema,
  SpawnCleanup as WireCleanup,
  SpawnMode as WireMode,
  ThreadBinding_State as WireThreadState,
} from "#gen/agentsessions/v1/session_pb.js";
import type { SpawnCleanup, SpawnMode, SpawnView } from "../../domain/spawn.ts";
import type { ThreadBinding, ThreadBindingState } from "../../domain/thread-binding.ts";
import { toRouteMessage } from "./route.ts";
import { toTimestamp } from "./time.ts";

/** How a session was spawned, as it is shown with the session. */
export function toSpawnInfo(spawn: SpawnView): MessageInitShape<typeof SpawnInfoSchema> {
  return {
    runId: spawn.firstRunId,
    exchangeId: spawn.exchangeId ?? "",
    mode: wireModes[spawn.mode],
    cleanup: wireCleanups[spawn.cleanup],
    runEndTime: toTimestamp(spawn.runEndedAt),
    settleTime: toTimestamp(spawn.settledAt),
    threadBinding: spawn.threadBinding && toThreadMessage(spawn.threadBinding),
  };
}

export const wireModes: Readonly<Record<SpawnMode, WireMode>> = { run: WireMode.RUN, session: WireMode.SESSION };

export const wireCleanups: Readonly<Record<SpawnCleanup, WireCleanup>> = {
  keep: WireCleanup.KEEP,
  delete: WireCleanup.DELETE,
};

const wireThreadStates: Readonly<Record<ThreadBindingState, WireThreadState>> = {
  requested: WireThreadState.REQUESTED,
  bound: WireThreadState.BOUND,
  failed: WireThreadState.FAILED,
  unbound: WireThreadState.UNBOUND,
};

function toThreadMessage(binding: ThreadBinding): MessageInitShape<typeof ThreadBindingSchema> {
  return {
    state: wireThreadStates[binding.state],
    route: toRouteMessage(binding.route),
    bindTime: toTimestamp(binding.boundAt),
    endTime: toTimestamp(binding.endedAt),
    detail: binding.detail ?? "",
  };
}
