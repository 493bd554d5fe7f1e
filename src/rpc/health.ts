import { EventEmitter, on } from "node:events";
import { Code, ConnectError, type ConnectRouter, type HandlerContext } from "@connectrpc/connect";
import {
  Health,
  type HealthCheckRequest,
  HealthCheckResponse_ServingStatus as ServingStatus,
} from "#gen/grpc/health/v1/health_pb.js";
import { unknownHealthService } from "./errors.ts";

/**
 * grpc.health.v1 over a table of statuses: one entry per service and "" for the whole server (C182).
 * A load balancer that watches "" stops sending before a draining server stops accepting.
 */
export class HealthTable {
  readonly #statuses: Map<string, ServingStatus>;
  readonly #changes = new EventEmitter().setMaxListeners(0);

  constructor(services: readonly string[]) {
    this.#statuses = new Map(["", ...services].map((service) => [service, ServingStatus.SERVING]));
  }

  /** Says SERVING or NOT_SERVING for every service; watchers hear of a change alone. */
  setServing(serving: boolean): void {
    const status = serving ? ServingStatus.SERVING : ServingStatus.NOT_SERVING;
    if (this.#statuses.get("") === status) return;
    for (const service of this.#statuses.keys()) this.#statuses.set(service, status);
    this.#changes.emit("change");
  }

  /** Adds Check, List and Watch to a router. */
  route(router: ConnectRouter): void {
    router.service(Health, {
      check: ({ service }) => ({ status: this.#statusOf(service) }),
      list: () => ({
        statuses: Object.fromEntries([...this.#statuses].map(([service, status]) => [service, { status }])),
      }),
      watch: (request, context) => this.#watch(request, context),
    });
  }

  #statusOf(service: string): ServingStatus {
    const status = this.#statuses.get(service);
    if (status === undefined) throw unknownHealthService(service);
    return status;
  }

  /** Never ends by itself; an unknown service is a status here, not an error, as the protocol wants it. */
  async *#watch({ service }: HealthCheckRequest, { signal }: HandlerContext) {
    const changes = on(this.#changes, "change", { signal });
    let last = this.#statuses.get(service) ?? ServingStatus.SERVICE_UNKNOWN;
    yield { status: last };
    try {
      for await (const _ of changes) {
        const status = this.#statuses.get(service) ?? ServingStatus.SERVICE_UNKNOWN;
        if (status !== last) yield { status };
        last = status;
      }
    } catch (error) {
      throw signal.aborted ? ConnectError.from(signal.reason, Code.Canceled) : error;
    }
  }
}
