import type { AgentSessions } from "../client/index.ts";

/** The place of one turn among those its host runs at once. */
export interface Place {
  /** Lets another turn have it. */
  lend(): void;
  /** Takes it back at once, whoever has it: the host may be over its limit until some turn ends. */
  takeBack(): void;
}

/**
 * The session tools of a turn, which lends its place while it waits for runs of other sessions: those it waits for may
 * need that very place (S5.10, C4). Waits of a turn that overlap lend it once.
 */
export function lendWhileWaiting(sessions: AgentSessions, place: Place): AgentSessions {
  let waits = 0;
  const lent = async <T>(wait: () => Promise<T>): Promise<T> => {
    if (waits++ === 0) place.lend();
    try {
      return await wait();
    } finally {
      if (--waits === 0) place.takeBack();
    }
  };
  return {
    ...sessions,
    sendMessage: (options) =>
      options.waitMs === 0 ? sessions.sendMessage(options) : lent(() => sessions.sendMessage(options)),
    waitRun: (runId, options) => lent(() => sessions.waitRun(runId, options)),
    waitRuns: (runIds, options) => lent(() => sessions.waitRuns(runIds, options)),
  };
}
