import type { AgentSessions } from "../../client/index.ts";
import type { AgentHost, AgentHostOptions } from "../../host/index.ts";

/**
 * A story the demo tells on a real server: it does something, says what happens as it happens, and checks what it says.
 * Stories share one server and run one after the other; each uses agents and sessions of its own.
 */
export interface Story {
  /** The word after `npm run demo --`. */
  readonly name: string;
  /** One line for the list of stories. */
  readonly summary: string;
  /** Tells the story. Rejects when a check fails; hosts started on the stage are stopped either way. */
  run(stage: Stage): Promise<void>;
}

/** What a story plays on. */
export interface Stage {
  /** The server, a child process with a database of its own in a temporary directory. */
  readonly server: StageServer;
  /** A client of that server, acting as an operator. */
  readonly client: AgentSessions;
  /** Path for a directory of the story's own; what is there when the demo ends is removed. */
  readonly directory: string;
  /** Prints one line of the story. */
  tell(line: string): void;
  /** Prints part of a line, for text that streams; `tell` starts a new line after it. */
  tellPart(text: string): void;
  /** Throws when what the story says is not so; the demo then exits non-zero. */
  check(holds: boolean, what: string): asserts holds;
  /** Starts an agent host in this process, stopped when the story ends. */
  startHost(options: Omit<AgentHostOptions, "baseUrl">): Promise<AgentHost>;
}

/** The server of a stage. */
export interface StageServer {
  readonly baseUrl: string;
  /** Its data directory; removed when the demo ends. */
  readonly dataDir: string;
  /** Runs `agentsessions <args>` as a process of its own and collects what it prints. Never rejects for a non-zero exit. */
  runCli(args: readonly string[]): Promise<CliResult>;
}

export interface CliResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}
