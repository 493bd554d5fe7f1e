import { randomUUID } from "node:crypto";
import type { TestClients } from "./server.ts";

/** One call, made for the session, run or exchange of this name. */
export type Probe = (clients: TestClients, name: string) => Promise<unknown>;
export type Probes = Readonly<Record<string, Probe>>;

/** One file given to each session, by its key and id, and one given back by each run, by its id. */
export const files = new Map<string, string>();
/** Of no session, run or file. */
export const missingId = randomUUID();
/** Looks once. */
export const wait = { seconds: 0n };

/** The first frame of the file that goes with this name, or of the file of this id. */
async function readFile({ sessions }: TestClients, name: string): Promise<unknown> {
  for await (const frame of sessions.readAttachment({ attachmentId: files.get(name) ?? missingId })) return frame;
}

/** One call for every RPC that names a session. What goes through a guard is stopped by a stale etag, or does no harm. */
export const sessionProbes: Probes = {
  ListSessions: ({ sessions }, parent) => sessions.listSessions({ parent }),
  GetSession: ({ sessions }, session) => sessions.getSession({ session }),
  ListMessages: ({ sessions }, session) => sessions.listMessages({ session }),
  SendMessage: ({ sessions }, session) =>
    sessions.sendMessage({ requestId: randomUUID(), session, message: "hi", waitTimeout: wait }),
  "SendMessage, validate_only": ({ sessions }, session) =>
    sessions.sendMessage({ requestId: randomUUID(), session, message: "hi", waitTimeout: wait, validateOnly: true }),
  UpdateSession: ({ sessions }, session) =>
    sessions.updateSession({
      requestId: randomUUID(),
      session,
      etag: "stale",
      updateMask: { paths: ["label"] },
      settings: { label: "mine" },
    }),
  "ReadAttachment, given": readFile,
  GetUsage: ({ runs }, session) => runs.getUsage({ session }),
  ArchiveSession: ({ sessions }, session) => sessions.archiveSession({ requestId: randomUUID(), session }),
  DeleteSession: ({ sessions }, session) => sessions.deleteSession({ requestId: randomUUID(), session, etag: "stale" }),
  ListRuns: ({ runs }, session) => runs.listRuns({ session }),
  "ListRuns, source_session": ({ runs }, sourceSession) => runs.listRuns({ sourceSession }),
  "ListExchanges, requester": ({ runs }, requester) => runs.listExchanges({ requester }),
  "ListExchanges, target": ({ runs }, target) => runs.listExchanges({ target }),
};

/** Last of all: it makes another session of its target. */
export const resetProbe: Probes = {
  ResetSession: ({ sessions }, session) => sessions.resetSession({ requestId: randomUUID(), session }),
};

export const runProbes: Probes = {
  GetRun: ({ runs }, runId) => runs.getRun({ runId }),
  WaitRun: ({ runs }, runId) => runs.waitRun({ runId, waitTimeout: wait }),
  WaitRuns: ({ runs }, runId) => runs.waitRuns({ runIds: [runId], waitTimeout: wait }),
  "ReadAttachment, given back": readFile,
  WatchRun: async ({ runs }, runId) => {
    for await (const frame of runs.watchRun({ runId })) return frame;
  },
  ListRunEvents: ({ runs }, runId) => runs.listRunEvents({ runId }),
  CancelRun: ({ runs }, runId) => runs.cancelRun({ requestId: randomUUID(), runId }),
};

export const exchangeProbes: Probes = {
  GetExchange: ({ runs }, exchangeId) => runs.getExchange({ exchangeId }),
};
