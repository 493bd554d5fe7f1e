import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    reporters: ["default", "./test/summary.ts"],
    globalSetup: "./test/global-setup.ts",
    setupFiles: "./test/support/close-after-file.ts",
    maxWorkers: 2,
    testTimeout: 20_000,
    hookTimeout: 30_000,
  },
});
