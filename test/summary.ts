import type { Reporter, TestModule } from "vitest/node";

/** Ends every run with one line to read: `N passed, N failed, N skipped`. */
export default class Summary implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], errors: readonly unknown[]): void {
    const count = { passed: 0, failed: 0, skipped: 0 };
    for (const module of modules) {
      const before = count.failed;
      for (const test of module.children.allTests()) {
        const { state } = test.result();
        // A test that never came to run was stopped by a failing hook or module.
        if (state === "pending") count.failed++;
        else count[state]++;
      }
      // A module that does not load, or a suite hook that fails, leaves no failed test behind.
      if (module.state() === "failed" && count.failed === before) count.failed++;
    }
    // An error outside every test: an unhandled rejection, or a global setup that failed.
    if (errors.length > 0 && count.failed === 0) count.failed++;
    const line = `${count.passed} passed, ${count.failed} failed, ${count.skipped} skipped\n`;
    // After everything the other reporter still has to say.
    process.once("exit", () => process.stdout.write(line));
  }
}
