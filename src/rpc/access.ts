import type { DescMethod, DescService } from "@bufbuild/protobuf";
import { AdminService } from "#gen/agentsessions/v1/admin_service_pb.js";
import { ChannelService } from "#gen/agentsessions/v1/channel_service_pb.js";
import { HostService } from "#gen/agentsessions/v1/host_service_pb.js";
import { RunService } from "#gen/agentsessions/v1/run_service_pb.js";
import { SessionService } from "#gen/agentsessions/v1/session_service_pb.js";
import { AppError } from "../domain/errors.ts";
import type { Principal, Role } from "../domain/principal.ts";
import type { SessionTool } from "../domain/tool-policy.ts";

/** Who may call an RPC, and what bounds it for them beyond their role. */
export interface Access {
  readonly roles: readonly Role[];
  /**
   * What the call does to the session or run it names; the guards in app/resolve-session.ts and app/get-run.ts hold
   * callers to their scope by it. list: shows what the scope leaves. host: bound by the agents of the credential.
   * lease: about runs or deliveries the caller holds, which only their lease tokens open. channel: bound by the channels and
   * accounts of the credential. open: names no session.
   */
  readonly verb: "list" | "read" | "send" | "change" | "host" | "lease" | "channel" | "open";
  /** The tool by which sessions reach it; app/tool-policy.ts says which may (S6.7). Absent = no tool policy closes it. */
  readonly tool?: SessionTool;
}

const reading = (verb: "list" | "read", tool?: SessionTool): Access => ({
  roles: ["operator", "host", "session"],
  verb,
  ...(tool && { tool }),
});
const acting = (verb: "send" | "change"): Access => ({ roles: ["operator", "session"], verb, tool: "sessions_send" });
const hosting = (verb: "host" | "lease"): Access => ({ roles: ["operator", "host"], verb });
const connecting = (verb: "channel" | "lease"): Access => ({ roles: ["operator", "connector"], verb });
const administering: Access = { roles: ["operator"], verb: "open" };

/**
 * Every RPC of every service. An RPC without a row does not compile, and is refused to everybody;
 * test/rpc/access-walk.test.ts calls each as everyone, and docs/access-matrix.md says it in words. Health and reflection
 * are open to all.
 */
export const accessTable: ReadonlyMap<string, Access> = new Map([
  ...accessOf(SessionService, {
    listSessions: reading("list", "sessions_list"),
    getSession: reading("read", "sessions_list"),
    listMessages: reading("read", "sessions_history"),
    sendMessage: acting("send"),
    updateSession: acting("change"),
    resetSession: acting("change"),
    archiveSession: acting("change"),
    deleteSession: acting("change"),
    spawnSession: { roles: ["session"], verb: "open", tool: "sessions_spawn" },
    readAttachment: reading("read"),
    listAgents: { roles: ["operator", "host", "connector", "session"], verb: "open" },
  }),
  ...accessOf(RunService, {
    getRun: reading("read", "sessions_history"),
    listRuns: reading("list", "sessions_history"),
    waitRun: reading("read", "sessions_history"),
    waitRuns: reading("read", "sessions_history"),
    watchRun: reading("read", "sessions_history"),
    listRunEvents: reading("read", "sessions_history"),
    cancelRun: acting("change"),
    getUsage: reading("list", "sessions_history"),
    getExchange: reading("read", "sessions_history"),
    listExchanges: reading("list", "sessions_history"),
  }),
  ...accessOf(HostService, {
    registerHost: hosting("host"),
    claimRuns: hosting("host"),
    heartbeatRuns: hosting("lease"),
    appendRunEvents: hosting("lease"),
    completeRun: hosting("lease"),
    failRun: hosting("lease"),
    releaseRun: hosting("lease"),
    drainHost: hosting("host"),
  }),
  ...accessOf(ChannelService, {
    registerConnector: connecting("channel"),
    receiveMessage: connecting("channel"),
    claimDeliveries: connecting("channel"),
    beginDelivery: connecting("lease"),
    ackDelivery: connecting("lease"),
    nackDelivery: connecting("lease"),
    rejectDelivery: connecting("lease"),
    listDeliveries: connecting("channel"),
    redriveDeliveries: administering,
  }),
  ...accessOf(AdminService, {
    explainAccess: administering,
    listAuditEvents: administering,
  }),
]);

function accessOf<S extends DescService>(
  service: S,
  rows: Readonly<Record<keyof S["method"], Access>>,
): [string, Access][] {
  return Object.entries<Access>(rows).map(([name, access]) => [nameOf(service.method[name]!), access]);
}

/** As errors and logs say it: service and method. */
function nameOf(method: DescMethod): string {
  return `${method.parent.typeName}/${method.name}`;
}

/** Refuses an RPC to a role it is not for, whatever it is about. Throws AppError role_denied. */
export function refuseRole({ role }: Principal, method: DescMethod): void {
  const rpc = nameOf(method);
  if (!accessTable.get(rpc)?.roles.includes(role)) throw new AppError({ kind: "role_denied", role, rpc });
}

/** The tool by which sessions reach an RPC; undefined when it is none of them. */
export function toolOf(method: DescMethod): SessionTool | undefined {
  return accessTable.get(nameOf(method))?.tool;
}
