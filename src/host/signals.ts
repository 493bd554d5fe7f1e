import type { AgentHost } from "./agent-host.ts";

export interface DrainSignalsOptions {
  /** Default SIGTERM and SIGINT. */
  readonly signals?: readonly NodeJS.Signals[];
  /** How long held turns may take before they are stopped. Default: as long as they need. */
  readonly timeoutMs?: number;
}

/**
 * Drains the host at the first signal and stops it at the second. The process then ends by itself when nothing else keeps it.
 * Returns a function that takes the listeners off again.
 */
export function drainOnSignals(host: AgentHost, options: DrainSignalsOptions = {}): () => void {
  const signals = options.signals ?? ["SIGTERM", "SIGINT"];
  const { timeoutMs } = options;
  let signaled = false;
  const onSignal = () => {
    void (signaled ? host.stop() : host.drain(timeoutMs === undefined ? {} : { timeoutMs })).finally(remove);
    signaled = true;
  };
  const remove = () => {
    for (const signal of signals) process.off(signal, onSignal);
  };
  for (const signal of signals) process.on(signal, onSignal);
  return remove;
}
