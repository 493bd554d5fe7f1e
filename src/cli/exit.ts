/** What a command cannot do, for the person at the terminal. */
export class CommandError extends Error {
  readonly exitCode: number;
  constructor(message: string, exitCode = 1) {
    super(message);
    this.name = "CommandError";
    this.exitCode = exitCode;
  }
}

/** Exit code for flags, configuration or files that are not accepted: starting again does not help, changing them does. */
export const usageExitCode = 2;
