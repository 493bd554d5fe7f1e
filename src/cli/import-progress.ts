import { Presets, SingleBar } from "cli-progress";
import type { ImportProgress } from "../import/import-openclaw.ts";

/** Shows how far an import is. */
export interface ProgressView {
  show(progress: ImportProgress): void;
  close(): void;
}

/** A bar on a terminal, else a line a second: on standard error, so that standard output holds the report alone. */
export function openProgress(stream: NodeJS.WriteStream): ProgressView {
  return stream.isTTY ? barOn(stream) : linesOn(stream);
}

const lineEveryMs = 1000;

function barOn(stream: NodeJS.WriteStream): ProgressView {
  const format = "importing {bar} {value}/{total} sessions, {messages} messages";
  const bar = new SingleBar({ format, stream, hideCursor: true, clearOnComplete: true }, Presets.shades_classic);
  let started = false;
  return {
    show({ done, total, messages }) {
      if (!started) bar.start(total, done, { messages });
      started = true;
      bar.update(done, { messages });
    },
    close: () => bar.stop(),
  };
}

function linesOn(stream: NodeJS.WriteStream): ProgressView {
  let shownAt = Number.NEGATIVE_INFINITY;
  return {
    show({ done, total, messages }) {
      const now = performance.now();
      if (done < total && now - shownAt < lineEveryMs) return;
      shownAt = now;
      stream.write(`importing: ${done} of ${total} sessions, ${messages} messages\n`);
    },
    close: () => {},
  };
}
