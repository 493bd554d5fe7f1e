import { readFileSync } from "node:fs";
import JSON5 from "json5";
import { ConfigError } from "./problems.ts";
import { type Config, parseConfig } from "./schema.ts";

/** A configuration file that cannot be used. The message names the file and every problem in it. */
export class ConfigFileError extends Error {
  constructor(file: string, problem: string) {
    super(`configuration file ${file}: ${problem}`);
    this.name = "ConfigFileError";
  }
}

/** Reads a JSON5 configuration file. Throws ConfigFileError when it is missing, malformed or not accepted. */
export function loadConfig(file: string): Config {
  const text = readText(file);
  let value: unknown;
  try {
    value = JSON5.parse(text);
  } catch (error) {
    throw new ConfigFileError(file, `not JSON5: ${(error as Error).message.replace(/^JSON5: /, "")}`);
  }
  try {
    return parseConfig(value);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const problems = error.message.split("\n").map((line) => `\n  ${line}`);
    throw new ConfigFileError(file, `not accepted${problems.join("")}`);
  }
}

function readText(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    throw new ConfigFileError(file, code === "ENOENT" ? "no such file" : `cannot be read: ${message}`);
  }
}
