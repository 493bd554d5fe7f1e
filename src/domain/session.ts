import type { DeliveryRoute } from "./delivery-route.ts";
import type { Message } from "./message.ts";
import type { ChatType, SessionKind } from "./session-key.ts";
import type { SpawnView } from "./spawn.ts";

export type { DeliveryRoute };

/** active: what its key resolves to. archived: put away. superseded: replaced by a reset (C116). deleted: a tombstone that keeps run results readable (C166). */
export type SessionState = "active" | "archived" | "superseded" | "deleted";

export type SendPolicyOverride = "allow" | "deny";

/** A session as stored. Absent means unknown or unset. */
export interface Session {
  /** Key inside the database; never leaves the service. */
  readonly id: bigint;
  readonly sessionId: string;
  readonly sessionKey: string;
  readonly agentId: string;
  readonly kind: SessionKind;
  readonly chatType: ChatType;
  readonly state: SessionState;
  /** `global` or `unknown`, from an import: there for operators alone (S2.5). */
  readonly reserved: boolean;
  /** Channel recorded on the session itself (groups). */
  readonly channel?: string;
  readonly label?: string;
  readonly displayName?: string;
  readonly subject?: string;
  readonly model?: string;
  readonly modelProvider?: string;
  readonly modelOverride?: string;
  readonly thinkingLevel?: string;
  readonly verboseLevel?: string;
  readonly contextTokens?: number;
  readonly inputTokens?: number;
  readonly outputTokens?: number;
  readonly totalTokens?: number;
  readonly systemSent?: boolean;
  readonly abortedLastRun?: boolean;
  readonly sendPolicy?: SendPolicyOverride;
  readonly lastChannel?: string;
  readonly lastTo?: string;
  readonly deliveryRoute?: DeliveryRoute;
  /**
   * What stays when a reset makes a new incarnation under the key: the internal id of the first one. A session created
   * after a deletion starts a new address.
   */
  readonly addressId: bigint;
  /** The incarnation that spawned it. */
  readonly parentId?: bigint;
  /** Address of the root of its spawn tree. */
  readonly rootId: bigint;
  /** Addresses from the root down to its own. All incarnations of an address have the same. */
  readonly path: readonly bigint[];
  readonly messageCount: number;
  readonly version: number;
  readonly createdAt: Date;
  readonly updatedAt: Date;
  readonly archivedAt?: Date;
}

/** A session with the names of its relatives, how it was spawned and, when asked for, its last messages. */
export interface SessionRow extends Session {
  readonly parentSessionKey?: string;
  readonly rootSessionId: string;
  /** Absent for one nobody spawned. */
  readonly spawn?: SpawnView;
  readonly messages?: readonly Message[];
}

/** Opaque form of a session's version, for compare-and-set. */
export function etagOf(session: Pick<Session, "sessionId" | "version">): string {
  return `${session.sessionId.slice(-8)}-${session.version}`;
}
