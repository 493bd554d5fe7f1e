/** What the store needs of a structured log; the process's own log fits. */
export interface Log {
  info(facts: object, message: string): void;
  warn(facts: object, message: string): void;
}
