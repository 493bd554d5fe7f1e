import type { z } from "zod";
import { nearestKey } from "./nearest-key.ts";

/** One thing wrong in a configuration. */
export interface ConfigProblem {
  /** Where, as one would write it: `agents.list[1].id`. */
  readonly path: string;
  /** What stands there; undefined when nothing does. */
  readonly value: unknown;
  /** What could stand there. */
  readonly expected: string;
}

/** A configuration that is not accepted. The message lists every problem, one a line. */
export class ConfigError extends Error {
  readonly problems: readonly ConfigProblem[];
  constructor(problems: readonly ConfigProblem[]) {
    super(problems.map(formatProblem).join("\n"));
    this.name = "ConfigError";
    this.problems = problems;
  }
}

function formatProblem({ path, value, expected }: ConfigProblem): string {
  const shown = value === undefined ? "nothing" : shorten(JSON.stringify(value));
  return `${path || "(the whole file)"}: got ${shown}, expected ${expected}`;
}

function shorten(json: string): string {
  return json.length <= 80 ? json : `${json.slice(0, 79)}…`;
}

/** Turns what the schema library found into problems people can act on. */
export function toConfigError(error: z.ZodError, input: unknown, schema: z.ZodType): ConfigError {
  return new ConfigError(error.issues.flatMap((issue) => toProblems(issue, input, schema)));
}

function toProblems(issue: z.core.$ZodIssue, input: unknown, schema: z.ZodType): ConfigProblem[] {
  if (issue.code !== "unrecognized_keys") {
    return [{ path: formatPath(issue.path), value: valueAt(input, issue.path), expected: issue.message }];
  }
  return issue.keys.map((key) => ({
    path: formatPath([...issue.path, key]),
    value: valueAt(input, [...issue.path, key]),
    expected: nearestKey(key, issue.path, schema),
  }));
}

function valueAt(input: unknown, path: readonly PropertyKey[]): unknown {
  return path.reduce<unknown>((value, key) => (value as Record<PropertyKey, unknown> | undefined)?.[key], input);
}

/** Writes a path as in code: `agents.list[1].id`. */
function formatPath(path: readonly PropertyKey[]): string {
  return path.reduce<string>((text, key) => {
    if (typeof key === "number") return `${text}[${key}]`;
    return text === "" ? String(key) : `${text}.${String(key)}`;
  }, "");
}
