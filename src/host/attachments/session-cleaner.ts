import type { Client } from "@connectrpc/connect";
import type { SessionService } from "#gen/agentsessions/v1/session_service_pb.js";
import { pause } from "../../client/backoff.ts";
import { reasonOf } from "../../client/errors.ts";
import type { HostLog } from "../options.ts";
import { cleanWorkspace } from "./clean-workspace.ts";
import type { Manifest } from "./manifest.ts";
import type { Workspaces } from "./workspaces.ts";

/** What an operator's credential is told, and what a host's is. */
const MISSING: ReadonlySet<string | undefined> = new Set(["SESSION_NOT_FOUND", "VISIBILITY_DENIED"]);
const INTERVAL_MS = 10 * 60 * 1000;

export interface SessionCleaning {
  /** With the credential of the host. */
  readonly sessions: Client<typeof SessionService>;
  /** Agents of the host. */
  readonly agentIds: ReadonlySet<string>;
  readonly workspaces: Workspaces;
  readonly log: HostLog;
  readonly closing: AbortSignal;
}

/**
 * Removes files of deleted sessions from the workspaces of a host. The manifests on disk are all that is remembered, so that another
 * process goes on where one ended.
 */
export class SessionCleaner {
  readonly #sessions: Client<typeof SessionService>;
  readonly #agentIds: ReadonlySet<string>;
  readonly #workspaces: Workspaces;
  readonly #log: HostLog;
  readonly #closing: AbortSignal;

  constructor({ sessions, agentIds, workspaces, log, closing }: SessionCleaning) {
    this.#sessions = sessions;
    this.#agentIds = agentIds;
    this.#workspaces = workspaces;
    this.#log = log;
    this.#closing = closing;
  }

  /** Cleans now and every ten minutes until closing. Keeps no process alive for it. */
  async cleanWhileOpen(): Promise<void> {
    while (!this.#closing.aborted) {
      await this.clean().catch((error: unknown) => this.#log.warn({ err: error }, "workspaces could not be cleaned"));
      await pause(INTERVAL_MS, this.#closing, { keepAlive: false });
    }
  }

  /** Cleans now; returns how many directories. */
  async clean(): Promise<number> {
    let sum = 0;
    const cleaning = { isDeleted: (manifest: Manifest) => this.#isDeleted(manifest), log: this.#log };
    for (const workspace of this.#workspaces.known()) {
      // Forgotten first: what a run puts there meanwhile is noted after it.
      this.#workspaces.forget(workspace);
      const { cleaned, left } = await cleanWorkspace(workspace, cleaning);
      if (left) this.#workspaces.note(workspace);
      sum += cleaned;
    }
    return sum;
  }

  /**
   * Whether the service says that there is no such session. Asked about the agents of this host alone: sessions of others may be
   * hidden from its credential, which looks the same (S8.4). Any other answer, or none, leaves the files.
   */
  async #isDeleted({ sessionId, sessionKey }: Manifest): Promise<boolean> {
    if (!this.#agentIds.has(agentOf(sessionKey))) return false;
    try {
      await this.#sessions.getSession({ session: sessionId }, { signal: this.#closing });
      return false;
    } catch (error) {
      if (MISSING.has(reasonOf(error))) return true;
      if (!this.#closing.aborted)
        this.#log.warn({ err: error, sessionId }, "whether a session was deleted is not known");
      return false;
    }
  }
}

/** "agent:<agentId>:…" */
function agentOf(sessionKey: string): string {
  return sessionKey.split(":")[1] ?? "";
}
