import { readFileSync } from "node:fs";

/** Version of this release, as package.json has it. */
export function releaseVersion(): string {
  return (JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as { version: string })
    .version;
}
