import type { Command } from "commander";
import { exchangeStory } from "./demo/exchange-story.ts";
import { importStory } from "./demo/import-story.ts";
import { sendStory } from "./demo/send-story.ts";
import { spawnStory } from "./demo/spawn-story.ts";
import { openTheatre, StoryFailed } from "./demo/stage.ts";
import type { Story } from "./demo/story.ts";
import { CommandError, usageExitCode } from "./exit.ts";

const STORIES: readonly Story[] = [sendStory, exchangeStory, spawnStory, importStory];

/** `agentsessions demo` */
export function addDemoCommand(program: Command): void {
  program
    .command("demo")
    .description("tell stories on a server of its own, and leave nothing behind")
    .argument("[story...]", "stories to tell; without a name all of them")
    .addHelpText(
      "after",
      `\nStories:\n${describeStories()}\n\nExit codes: 0 told, 1 something did not hold, 2 no such story.`,
    )
    .action(demo);
}

async function demo(names: readonly string[]): Promise<void> {
  const stories = names.length === 0 ? STORIES : names.map(getStory);
  const startedAt = performance.now();
  const open = new AsyncDisposableStack();
  const interruption = closeOnSignals(open);
  try {
    const theatre = await openTheatre(open, (text) => process.stdout.write(text));
    for (const story of stories) {
      process.stdout.write(`\n── ${story.name}: ${story.summary}\n\n`);
      await theatre.play(story);
    }
  } catch (error) {
    if (interruption.closing) return interruption.closing;
    throw error instanceof StoryFailed ? new CommandError(error.message) : error;
  } finally {
    await open.disposeAsync();
    interruption.forget();
  }
  process.stdout.write(`\n${stories.length} told in ${((performance.now() - startedAt) / 1000).toFixed(1)} s.\n`);
}

function getStory(name: string): Story {
  const story = STORIES.find((known) => known.name === name);
  if (!story) throw new CommandError(`there is no story "${name}". Stories:\n${describeStories()}`, usageExitCode);
  return story;
}

function describeStories(): string {
  return STORIES.map(({ name, summary }) => `  ${name.padEnd(9)} ${summary}`).join("\n");
}

interface Interruption {
  /** Set once a signal came; the process exits when it resolves. */
  readonly closing: Promise<void> | undefined;
  /** Leaves signals alone again. */
  forget(): void;
}

/** Clears up before it ends at a signal, with the code a shell gives to it. */
function closeOnSignals(open: AsyncDisposableStack): Interruption {
  const codes = { SIGINT: 130, SIGTERM: 143, SIGHUP: 129 };
  let closing: Promise<void> | undefined;
  const onSignal = (signal: NodeJS.Signals) => {
    closing ??= open.disposeAsync().finally(() => process.exit(codes[signal as keyof typeof codes]));
  };
  for (const signal of Object.keys(codes)) process.on(signal, onSignal);
  const forget = () => {
    for (const signal of Object.keys(codes)) if (!closing) process.off(signal, onSignal);
  };
  return {
    get closing() {
      return closing;
    },
    forget,
  };
}
