import { type Command, InvalidArgumentError, Option } from "commander";
import type { App } from "../app/context.ts";
import { createToken } from "../app/create-token.ts";
import { listTokens } from "../app/list-tokens.ts";
import { revokeToken } from "../app/revoke-token.ts";
import { defaultConfig } from "../config/schema.ts";
import { AGENT_PATTERN } from "../domain/agent-access.ts";
import type { ApiToken } from "../domain/api-token.ts";
import { CALLER_NAME, findGrantProblem, type Grant, grantedRoles } from "../domain/grant.ts";
import { openApp } from "../open-app.ts";
import { CommandError, usageExitCode } from "./exit.ts";
import { dataDirOption } from "./flags.ts";
import { openLog } from "./log.ts";

interface CreateFlags extends Grant {
  readonly dataDir: string;
  readonly name: string;
  /** Milliseconds. */
  readonly expires?: number;
  readonly json: boolean;
}

interface ListFlags {
  readonly dataDir: string;
  readonly json: boolean;
}

/** `agentsessions token create | list | revoke` */
export function addTokenCommand(program: Command): void {
  const token = program
    .command("token")
    .description("make, list and revoke API tokens, the lasting credentials of callers");
  const jsonOption = () => new Option("--json", "print JSON and nothing else").default(false);
  token
    .command("create")
    .description("make a token and print it, this once: only its hash is kept")
    .addOption(new Option("--role <ROLE>", "what its holder may be").choices(grantedRoles).makeOptionMandatory())
    .requiredOption(
      "--name <NAME>",
      "who uses it; callers of one role and name count as one, as over a rotation",
      toName,
    )
    .option(
      "--agents <LIST>",
      'agents a host serves: ids or patterns such as "team-*", with commas in between',
      toPatterns,
    )
    .option("--channels <LIST>", 'channels a connector carries; "*" for any', toList)
    .option("--accounts <LIST>", 'accounts on these channels (default: "*", any)', toList)
    .option("--expires <TIME>", "when it ends: a number and m, h or d, for example 90d (default: never)", toDuration)
    .addOption(jsonOption())
    .addOption(dataDirOption())
    .addHelpText(
      "after",
      `\nThe token goes to standard output, what there is to say about it to standard error.${whichDatabase}`,
    )
    .action(create);
  token
    .command("list")
    .description("list all tokens, newest first, without their secrets")
    .addOption(jsonOption())
    .addOption(dataDirOption())
    .addHelpText("after", whichDatabase)
    .action(list);
  token
    .command("revoke")
    .description("end a token; running servers refuse it within 5 seconds")
    .argument("<token-id>", "its id, as list shows it and as it stands in the token behind ast_", toTokenId)
    .addOption(dataDirOption())
    .addHelpText("after", whichDatabase)
    .action(revoke);
}

const whichDatabase =
  "\nTokens are in the database that DATABASE_URL names, else in the embedded one under --data-dir; a server may be running on it.";

async function create({ dataDir, name, expires, json, role, agents, channels, accounts }: CreateFlags): Promise<void> {
  const grant: Grant = {
    role,
    ...(agents && { agents }),
    ...(channels && { channels }),
    ...(accounts && { accounts }),
  };
  const problem = findGrantProblem(grant);
  if (problem !== undefined) {
    const { field } = problem;
    const hint = grant[field] === undefined ? `needs --${field}, for example --${field} "*"` : `takes no --${field}`;
    throw new CommandError(`--role ${role} ${hint}`, usageExitCode);
  }
  const input = { name, grant, ...(expires !== undefined && { expiresInMs: expires }) };
  const { token, stored } = await withApp(dataDir, (app) => createToken(app, input));
  if (json) {
    print({ token, ...toJson(stored) });
    return;
  }
  process.stdout.write(`${token}\n`);
  const end = stored.expiresAt === undefined ? "until it is revoked" : `until ${stored.expiresAt.toISOString()}`;
  process.stderr.write(
    `This is the only time the token is shown; only its hash is kept. It makes its holder ${describeGrant(stored.grant)}, ${end}.\n` +
      `Callers send it as "authorization: Bearer TOKEN". To end it: agentsessions token revoke ${idOf(stored)}\n`,
  );
}

async function list({ dataDir, json }: ListFlags): Promise<void> {
  const tokens = await withApp(dataDir, listTokens);
  if (json) {
    print(tokens.map((token) => ({ ...toJson(token), state: token.state })));
    return;
  }
  if (tokens.length === 0) process.stdout.write("There are no tokens; `agentsessions token create` makes one.\n");
  for (const token of tokens) {
    const times = [
      `made ${day(token.createdAt)}`,
      token.lastUsedAt ? `last used ${day(token.lastUsedAt)}` : "never used",
      token.revokedAt
        ? `revoked ${day(token.revokedAt)}`
        : token.expiresAt && `${token.state === "expired" ? "expired" : "expires"} ${day(token.expiresAt)}`,
    ].filter((text) => text !== undefined);
    process.stdout.write(
      `${idOf(token)}  ${token.state.padEnd(7)}  ${token.name}: ${describeGrant(token.grant)}; ${times.join(", ")}\n`,
    );
  }
}

async function revoke(tokenId: string, { dataDir }: ListFlags): Promise<void> {
  const revoked = await withApp(dataDir, (app) => revokeToken(app, tokenId));
  if (revoked === undefined) {
    throw new CommandError(`there is no token ${tokenId.replaceAll("-", "")}; \`agentsessions token list\` shows all`);
  }
  process.stdout.write(
    `"${revoked.name}" (${idOf(revoked)}) is revoked since ${revoked.revokedAt!.toISOString()}; running servers refuse it within 5 seconds.\n`,
  );
}

async function withApp<T>(dataDir: string, use: (app: Omit<App, "draining">) => Promise<T>): Promise<T> {
  const opened = await openApp({ config: defaultConfig(), log: openLog("warn"), dataDir, migrate: false });
  try {
    return await use(opened.app);
  } finally {
    await opened.close();
  }
}

function print(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value, undefined, 2)}\n`);
}

function toJson(token: ApiToken) {
  const { grant, createdAt, expiresAt, revokedAt, lastUsedAt } = token;
  return { tokenId: idOf(token), name: token.name, ...grant, createdAt, expiresAt, revokedAt, lastUsedAt };
}

/** The id as it stands in the token. */
function idOf({ tokenId }: ApiToken): string {
  return tokenId.replaceAll("-", "");
}

function day(time: Date): string {
  return `${time.toISOString().slice(0, 16).replace("T", " ")}Z`;
}

function describeGrant({ role, agents = [], channels = [], accounts = [] }: Grant): string {
  switch (role) {
    case "operator":
      return "an operator, who may do everything";
    case "host":
      return `a host of the agents ${agents.join(", ")}`;
    case "connector":
      return `a connector of the channels ${channels.join(", ")} (accounts ${accounts.join(", ")})`;
  }
}

function toName(text: string): string {
  if (!CALLER_NAME.test(text)) throw new InvalidArgumentError("expected 1 to 200 printable characters");
  return text;
}

function toList(text: string): string[] {
  const items = text.split(",").map((item) => item.trim());
  if (items.includes("")) throw new InvalidArgumentError("expected words with commas in between");
  return items;
}

function toPatterns(text: string): string[] {
  const patterns = toList(text);
  const bad = patterns.find((pattern) => !AGENT_PATTERN.test(pattern));
  if (bad === undefined) return patterns;
  throw new InvalidArgumentError(`"${bad}" is no agent id or pattern: a-z 0-9 _ - and * for any characters`);
}

const unitMs: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000 };
const maxExpiryMs = 3_650 * 86_400_000;

function toDuration(text: string): number {
  const [, count, unit] = /^([1-9]\d{0,6})([mhd])$/.exec(text) ?? [];
  const ms = Number(count) * (unitMs[unit ?? ""] ?? Number.NaN);
  if (ms <= maxExpiryMs) return ms;
  throw new InvalidArgumentError("expected a number and m, h or d, at most 3650d; for example 90d");
}

function toTokenId(text: string): string {
  const hex = text.replace(/^ast_/, "").replaceAll("-", "").toLowerCase();
  if (/^[0-9a-f]{32}$/.test(hex)) return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
  throw new InvalidArgumentError(
    "expected the 32 hexadecimal digits of a token's id; `agentsessions token list` shows it",
  );
}
