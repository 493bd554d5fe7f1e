#!/usr/bin/env node
import { existsSync } from "node:fs";

// Plain JavaScript, so that a Node too old for the rest can still say so.
const major = Number(process.versions.node.split(".")[0]);
if (major < 24) {
  console.error(
    `agentsessions: needs Node 24 or newer, this is ${process.versions.node}. ` +
      "In a clone, `npm start`, `npm run` and `npx agentsessions` use the Node that `npm ci` installed; elsewhere install Node 24 or newer.",
  );
  process.exitCode = 1;
} else {
  // A clone runs its sources as they are; a package has them built, as Node strips no types below node_modules.
  const source = new URL("../src/main.ts", import.meta.url);
  await import(existsSync(source) ? source.href : "../dist/main.js");
}
