import { afterAll } from "vitest";

const open: (() => Promise<void>)[] = [];

/** Closes something when the test file is done; what was opened last is closed first. */
export function closeAfterFile(close: () => Promise<void>): void {
  open.push(close);
}

afterAll(async () => {
  for (const close of open.splice(0).reverse()) await close();
});
