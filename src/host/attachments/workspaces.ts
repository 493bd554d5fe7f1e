import { isAbsolute } from "node:path";
import type { Run } from "#gen/agentsessions/v1/run_pb.js";
import { HostError } from "../errors.ts";
import type { AgentHostOptions } from "../options.ts";

/** The workspaces of a host: where a run's files go, and where to look for files of sessions that are gone. */
export class Workspaces {
  readonly #of: AgentHostOptions["workspace"];
  readonly #more: () => readonly string[];
  /** Those that may hold files. */
  readonly #used = new Set<string>();

  constructor({ workspace, workspaces }: Pick<AgentHostOptions, "workspace" | "workspaces">) {
    if (typeof workspace === "string" && !isAbsolute(workspace)) {
      throw new RangeError(`workspace: expected an absolute path, got ${JSON.stringify(workspace)}`);
    }
    this.#of = workspace;
    this.#more = workspaces ?? (() => []);
  }

  /** The workspace of a run; undefined when the host has none. */
  of(run: Run): string | undefined {
    const workspace = typeof this.#of === "function" ? this.#of(run) : this.#of;
    if (workspace === undefined) return undefined;
    if (!isAbsolute(workspace)) throw new HostError(`the workspace of the run is no absolute path: ${workspace}`);
    return workspace;
  }

  /** Files are there, or may be. */
  note(workspace: string): void {
    this.#used.add(workspace);
  }

  /** Of many workspaces, those without files are not kept in mind for ever. */
  forget(workspace: string): void {
    this.#used.delete(workspace);
  }

  /** Those where files were put in this process and may still be, the one there is for all, and those the host was told of. */
  known(): ReadonlySet<string> {
    return new Set([...(typeof this.#of === "string" ? [this.#of] : []), ...this.#used, ...this.#more()]);
  }
}
