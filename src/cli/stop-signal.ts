/** Aborts at the first SIGTERM or SIGINT. The second one ends the process at once, with the code a shell gives to it. */
export function stopSignal(): AbortSignal {
  const stop = new AbortController();
  const listen = (signal: NodeJS.Signals, exitCode: number) =>
    process.on(signal, () => {
      if (stop.signal.aborted) process.exit(exitCode);
      stop.abort();
    });
  listen("SIGTERM", 143);
  listen("SIGINT", 130);
  return stop.signal;
}
