import { readFileSync, writeFileSync } from "node:fs";

interface Block {
  /** Comments and commands, as written. */
  readonly lines: readonly string[];
  readonly result: string;
}

/**
 * A script is a text file of blocks, a blank line apart: comment lines (#), command lines, `----`, and one line of result for each command.
 * Runs every block and returns what the file says and what it should say. With REWRITE=1 in the environment the file is
 * written anew instead: read its diff.
 */
export function runScript(file: URL, run: (command: string) => string): { written: string; actual: string } {
  const written = readFileSync(file, "utf8");
  const blocks = parseScript(written).map(({ lines }): Block => {
    const commands = lines.filter((line) => !line.startsWith("#"));
    return { lines, result: commands.map(run).join("\n") };
  });
  const actual = formatScript(blocks);
  if (process.env["REWRITE"] !== "1") return { written, actual };
  writeFileSync(file, actual);
  return { written: actual, actual };
}

function parseScript(text: string): readonly Block[] {
  return text
    .trim()
    .split(/\n{2,}/)
    .map((block) => {
      const [lines = "", result = ""] = block.split(/^----\n?/m);
      return { lines: lines.trimEnd().split("\n"), result: result.trimEnd() };
    });
}

function formatScript(blocks: readonly Block[]): string {
  return `${blocks
    .map(({ lines, result }) => [...lines, ...(result === "" ? [] : ["----", result])].join("\n"))
    .join("\n\n")}\n`;
}
