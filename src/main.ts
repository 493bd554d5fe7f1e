import { toFailure } from "./cli/failure.ts";
import { buildProgram } from "./cli/program.ts";

// A reader that has gone, of a terminal or of `| head`, does not stop a server.
process.stdout.on("error", () => {});
process.stderr.on("error", () => {});

try {
  await buildProgram().parseAsync();
} catch (error) {
  const { exitCode, message } = toFailure(error);
  if (message !== undefined) process.stderr.write(`agentsessions: ${message}\n`);
  process.exitCode = exitCode;
}
