#!/usr/bin/env node
import { existsSync } from "node:fs";
import module from "node:module";
import { fileURLToPath } from "node:url";
import { setFlagsFromString } from "node:v8";

// Plain JavaScript, so that a Node too old for the rest can still say so.
const major = Number(process.versions.node.split(".")[0]);
if (major < 24) {
  console.error(
    `agentsessions: needs Node 24 or newer, this is ${process.versions.node}. ` +
      "In a clone, `npm start`, `npm run` and `npx agentsessions` use the Node that `npm ci` installed; elsewhere install Node 24 or newer.",
  );
  process.exitCode = 1;
} else {
  // Loading makes garbage of several times the size of what stays. Left alone, V8 lets the young generation grow for it to
  // 48 MB, of which an idle process then gives nothing back; the server lets it grow again once it serves.
  setFlagsFromString("--semi-space-growth-factor=1");
  // A clone runs its sources as they are; a package has them built, as Node strips no types below node_modules.
  const source = new URL("../src/main.ts", import.meta.url);
  const isClone = existsSync(source);
  // Stripped once, not at every start: 0.4 s less, and 18 MB that the stripper would take and keep.
  if (isClone) module.enableCompileCache(fileURLToPath(new URL("../node_modules/.cache/agentsessions", import.meta.url)));
  await import(isClone ? source.href : "../dist/main.js");
}
