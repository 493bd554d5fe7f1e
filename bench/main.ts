import { Command, InvalidArgumentError } from "commander";
import { accept } from "./accept.ts";
import { access } from "./access.ts";
import { archive } from "./archive.ts";
import type { Bench, Figures } from "./bench.ts";
import { claim } from "./claim.ts";
import { exchange } from "./exchange.ts";
import { latency } from "./latency.ts";
import { memory } from "./memory.ts";
import { outbox } from "./outbox.ts";
import { spawn } from "./spawn.ts";
import { tree } from "./tree.ts";

const benches: readonly Bench[] = [accept, access, archive, claim, exchange, latency, memory, outbox, spawn, tree];

interface Flags {
  readonly seconds: number;
  readonly rows?: number;
  readonly json: boolean;
}

const program = new Command("bench")
  .description("Measures what the service promises. Each bench makes a database of its own and removes it.")
  .addHelpText(
    "after",
    "\nWithout a name all run, one after the other. Figures depend on the machine; ratios hardly do.",
  );

for (const bench of benches) withFlags(program.command(bench.name).description(bench.summary), [bench]);
withFlags(program.command("all", { isDefault: true }).description("all of them"), benches);

function withFlags(command: Command, chosen: readonly Bench[]): void {
  command
    .option("--seconds <N>", "how long each measurement lasts", toPositive, 6)
    .option(
      "--rows <N>",
      "claim, outbox: queued runs or pending deliveries at most; access, tree: sessions; archive: sub-agents; spawn: spawns at the limit",
      toPositive,
    )
    .option("--json", "print JSON, one object a line", false)
    .action(async (flags: Flags) => {
      for (const bench of chosen) print(bench, await bench.run(flags), flags.json);
    });
}

function print({ name }: Bench, figures: Figures, json: boolean): void {
  const line = Object.entries(figures).map(([figure, value]) => `${figure}=${value}`);
  process.stdout.write(json ? `${JSON.stringify({ bench: name, ...figures })}\n` : `${name}: ${line.join(" ")}\n`);
}

function toPositive(text: string): number {
  const value = Number(text);
  if (!Number.isFinite(value) || value <= 0) throw new InvalidArgumentError("expected a number above 0");
  return value;
}

await program.parseAsync();
