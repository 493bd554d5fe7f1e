import { createContextValues } from "@connectrpc/connect";
import { compressionGzip, connectNodeAdapter } from "@connectrpc/connect-node";
import { AdminService } from "#gen/agentsessions/v1/admin_service_pb.js";
import { ChannelService } from "#gen/agentsessions/v1/channel_service_pb.js";
import { HostService } from "#gen/agentsessions/v1/host_service_pb.js";
import { RunService } from "#gen/agentsessions/v1/run_service_pb.js";
import { SessionService } from "#gen/agentsessions/v1/session_service_pb.js";
import { Health } from "#gen/grpc/health/v1/health_pb.js";
import type { App } from "../app/context.ts";
import { adminService } from "./admin-service.ts";
import { auditCalls } from "./audit-calls.ts";
import { authenticate } from "./authenticate.ts";
import { mapBareErrors } from "./bare-errors.ts";
import { channelService } from "./channel-service.ts";
import { deadline } from "./deadline.ts";
import { HealthTable } from "./health.ts";
import { hostService } from "./host-service.ts";
import type { KeySet } from "./key-set.ts";
import type { NodeHandler } from "./listener.ts";
import { logCalls } from "./log-calls.ts";
import { mapErrors, toWireError } from "./map-errors.ts";
import { peerKey, peerOf } from "./peer.ts";
import { routeReflection } from "./reflection.ts";
import { runService } from "./run-service.ts";
import { sessionService } from "./session-service.ts";
import { validateRequests, warmValidator } from "./validate.ts";

/** The services of this release; each has a health status of its own. */
export const services = [SessionService, RunService, HostService, ChannelService, AdminService];

export interface Routes {
  readonly handler: NodeHandler;
  readonly health: HealthTable;
}

export interface RouteOptions {
  readonly pageTokenKey: Buffer;
  /** Whether calls of this machine without a credential are the operator's. */
  readonly localOperator: boolean;
  /** Keys of server.auth.jwt. */
  readonly keySet: KeySet | undefined;
  /** Ends streams, with its reason, when it aborts. */
  readonly shutdown: AbortSignal;
}

/**
 * All RPCs as one HTTP handler for gRPC, gRPC-Web and Connect. The way of a call:
 *
 *   authenticate (before the body) → parse → log → deadline → map errors → audit → validate → service
 */
export function buildRoutes(app: App, { pageTokenKey, shutdown, ...identity }: RouteOptions): Routes {
  const health = new HealthTable(services.map((service) => service.typeName));
  const gate = authenticate(app, identity);
  const audit = auditCalls(app);
  const doors = { pageTokenKey };
  const handler = connectNodeAdapter({
    routes(router) {
      router.service(SessionService, sessionService(app, doors));
      router.service(RunService, runService(app, doors));
      router.service(HostService, hostService(app));
      router.service(ChannelService, channelService(app, doors));
      router.service(AdminService, adminService(app, doors));
      health.route(router);
      routeReflection(
        router,
        [...services, Health].map((service) => service.typeName),
      );
      for (const [index, handler] of router.handlers.entries()) router.handlers[index] = mapBareErrors(handler, app);
    },
    contextValues: (request) => createContextValues().set(peerKey, peerOf(request)),
    requestGate: (context) =>
      gate(context).catch((error: unknown) => {
        audit.refusedAtGate(context, error);
        throw toWireError(error, app, {
          rpc: `${context.service.typeName}/${context.method.name}`,
          signal: context.signal,
        });
      }),
    interceptors: [
      logCalls(app.log),
      deadline(shutdown),
      mapErrors(app),
      audit.interceptor,
      validateRequests(warmValidator(services)),
    ],
    shutdownSignal: shutdown,
    readMaxBytes: app.config.server.maxRequestBytes,
    // Gzip alone: brotli costs several times its CPU for texts of this size.
    acceptCompression: [compressionGzip],
    // An unknown key in JSON is a misspelled parameter, which must not be taken for its default.
    jsonOptions: { ignoreUnknownFields: false, ...strictUtf8 },
  });
  return { handler, health };
}

/** Connect decodes JSON bodies leniently unless it is given another decoder. */
const strictUtf8 = { textDecoder: new TextDecoder("utf-8", { fatal: true }) };
