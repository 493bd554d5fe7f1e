import { z } from "zod";
import { AGENT_PATTERN } from "../domain/agent-access.ts";
import { authSchema } from "./auth.ts";
import { checkCatalog } from "./catalog.ts";
import { listenAddressRule, parseListenAddress } from "./listen-address.ts";
import { toConfigError } from "./problems.ts";
import { flag, oneOf, section, text, textLike, wholeNumber } from "./rules.ts";

const agentId = () =>
  textLike(
    /^[a-z0-9][a-z0-9_-]{0,63}$/,
    "an agent id: 1 to 64 of a-z 0-9 _ -, beginning with a letter or digit (S2.6)",
  );
const modelName = () => text("the name of a model");
const thinkingLevel = () => oneOf(["off", "minimal", "low", "medium", "high", "xhigh", "adaptive"]);
const runTimeoutSeconds = () => wholeNumber(0, 604_800);
const sandboxMode = () => oneOf(["off", "all"]);
const agentPattern = () =>
  textLike(
    AGENT_PATTERN,
    'an agent id in which * stands for any characters, such as "nova", "team-*" or "*"; no session key',
  );

const toolName = () =>
  textLike(
    /^[A-Za-z0-9_.*-]{1,100}$/,
    'the name of a tool, with * for any characters, such as "sessions_spawn" or "web_*"',
  );
const toolRules = () =>
  section({
    allow: z.array(toolName(), { error: "a list of tools in brackets" }).exactOptional(),
    deny: z.array(toolName(), { error: "a list of tools in brackets" }).exactOptional(),
  });
const subagentModel = () => ({ model: modelName().exactOptional(), thinking: thinkingLevel().exactOptional() });

const agentSchema = section({
  id: agentId(),
  name: text("a name for people").exactOptional(),
  default: flag().exactOptional(),
  model: modelName().exactOptional(),
  thinking: thinkingLevel().exactOptional(),
  runTimeoutSeconds: runTimeoutSeconds().exactOptional(),
  sandbox: section({ mode: sandboxMode().exactOptional() }).exactOptional(),
  tools: toolRules().exactOptional(),
  subagents: section({
    allowAgents: z
      .array(textLike(/^(\*|[a-z0-9][a-z0-9_-]{0,63})$/, 'an agent id, or "*" for any configured agent'), {
        error: "a list of agent ids in brackets",
      })
      .exactOptional(),
    ...subagentModel(),
  }).exactOptional(),
});

type AgentEntry = z.output<typeof agentSchema>;

const agentList = z
  .array(agentSchema, { error: "a list of agents in brackets" })
  .min(1, { error: "at least one agent" })
  .superRefine((agents, context) => {
    const refuse = (index: number, key: string, message: string) =>
      context.addIssue({ code: "custom", path: [index, key], input: agents[index]?.[key as "id"], message });
    for (const [index, agent] of agents.entries()) {
      if (agents.findIndex(({ id }) => id === agent.id) < index) refuse(index, "id", "an id no other agent has");
      if (agent.default && agents.findIndex((other) => other.default) < index) {
        refuse(index, "default", "true for one agent at most");
      }
    }
  })
  .transform(withDefaultAgent)
  .prefault([{ id: "main" }]);

/** The first agent is the default one when none says so. */
function withDefaultAgent(agents: AgentEntry[]): AgentEntry[] {
  const chosen = Math.max(
    agents.findIndex((agent) => agent.default),
    0,
  );
  return agents.map((agent, index) => ({ ...agent, default: index === chosen }));
}

const channelName = () => textLike(/^[a-z0-9][a-z0-9._-]*$/, "the name of a channel in lower case");
const threadBindings = {
  enabled: flag(),
  idleHours: wholeNumber(0, 8_760),
  maxAgeHours: wholeNumber(0, 8_760),
};
const channelSchema = section({
  threadBindings: section({
    enabled: threadBindings.enabled.exactOptional(),
    idleHours: threadBindings.idleHours.exactOptional(),
    maxAgeHours: threadBindings.maxAgeHours.exactOptional(),
  }).exactOptional(),
  owners: z.array(text("the id of a sender on this channel"), { error: "a list in brackets" }).default([]),
});

const sendAction = () => oneOf(["allow", "deny"]);
const sendRule = section({
  match: section({
    channel: text("the name of a channel").exactOptional(),
    chatType: oneOf(["direct", "group", "channel", "unknown"]).exactOptional(),
    keyPrefix: text("the first characters of a session key").exactOptional(),
  }).prefault({}),
  action: sendAction(),
});

/** The shape of the configuration file, with every default. agentsessions.example.json5 explains each key. */
export const configSchema = section({
  session: section({
    scope: oneOf(["per-sender", "global"]).default("per-sender"),
    mainKey: textLike(
      /^(?!(?:global|unknown|current)$)[a-z0-9][a-z0-9_-]{0,63}$/,
      'a key segment: 1 to 64 of a-z 0-9 _ -, and none of the reserved words "global", "unknown", "current" (S2.5)',
    ).default("main"),
    dmScope: oneOf(["main", "per-peer", "per-channel-peer", "per-account-channel-peer"]).default("per-channel-peer"),
    store: text("a directory, with {agentId} where the agent's id goes").exactOptional(),
    agentToAgent: section({
      maxPingPongTurns: wholeNumber(0, 5).default(5),
      maxChainHops: wholeNumber(1, 100).default(10),
      maxChainRevisits: wholeNumber(0, 100).default(1),
    }).prefault({}),
    sendPolicy: section({
      rules: z.array(sendRule, { error: "a list of rules in brackets" }).default([]),
      default: sendAction().default("allow"),
    }).prefault({}),
    threadBindings: section({
      enabled: threadBindings.enabled.default(true),
      idleHours: threadBindings.idleHours.default(24),
      maxAgeHours: threadBindings.maxAgeHours.default(0),
    }).prefault({}),
  }).prefault({}),
  models: z
    .record(
      text("the name of a model"),
      section({
        alias: text("another name of the model").exactOptional(),
        thinking: z.array(thinkingLevel(), { error: "a list of thinking levels in brackets" }).exactOptional(),
      }),
      { error: "an object in braces: model → what is known of it" },
    )
    .default({}),
  agents: section({
    defaults: section({
      model: modelName().exactOptional(),
      thinking: thinkingLevel().exactOptional(),
      runTimeoutSeconds: runTimeoutSeconds().default(0),
      sandbox: section({
        mode: sandboxMode().default("off"),
        sessionToolsVisibility: oneOf(["spawned", "all"]).default("spawned"),
      }).prefault({}),
      subagents: section({
        ...subagentModel(),
        runTimeoutSeconds: runTimeoutSeconds().default(0),
        announceTimeoutSeconds: wholeNumber(1, 86_400).default(120),
        archiveAfterMinutes: wholeNumber(0, 525_600).default(60),
        maxChildrenPerAgent: wholeNumber(1, 10_000).default(5),
        maxActive: wholeNumber(1, 1_000_000).default(1_000),
        maxSpawnDepth: wholeNumber(1, 20).default(3),
      }).prefault({}),
    }).prefault({}),
    list: agentList,
  }).prefault({}),
  tools: section({
    sessions: section({ visibility: oneOf(["self", "tree", "agent", "all"]).default("tree") }).prefault({}),
    agentToAgent: section({
      enabled: flag().default(false),
      allow: z.array(agentPattern(), { error: "a list of agent patterns in brackets" }).default(["*"]),
    }).prefault({}),
    subagents: section({ tools: toolRules().prefault({}) }).prefault({}),
    sessions_spawn: section({
      attachments: section({
        enabled: flag().default(true),
        maxFiles: wholeNumber(1, 1_000).default(50),
        maxFileBytes: wholeNumber(1, 33_554_432).default(1_048_576),
        maxTotalBytes: wholeNumber(1, 50_331_648).default(5_242_880),
      }).prefault({}),
    }).prefault({}),
  }).prefault({}),
  channels: z
    .record(channelName(), channelSchema, { error: "an object in braces: channel → its settings" })
    .default({}),
  runs: section({
    leaseSeconds: wholeNumber(2, 3_600).default(30),
    startDeadlineSeconds: wholeNumber(1, 3_600).default(10),
    cancelGraceSeconds: wholeNumber(1, 3_600).default(30),
    maxAttempts: wholeNumber(1, 100).default(3),
    maxLostLeases: wholeNumber(0, 100).default(3),
    retryInitialSeconds: wholeNumber(1, 3_600).default(1),
    retryMaxSeconds: wholeNumber(1, 86_400).default(60),
    maxQueuedPerSession: wholeNumber(1, 1_000_000).default(1_000),
    redelivery: oneOf(["fail", "restart"]).default("fail"),
    staleAfterMinutes: wholeNumber(1, 525_600).default(120),
  }).prefault({}),
  deliveries: section({
    leaseSeconds: wholeNumber(2, 3_600).default(30),
    maxAttempts: wholeNumber(1, 1_000).default(8),
  }).prefault({}),
  retention: section({
    endedRunDays: wholeNumber(1, 3_650).default(30),
    deltaMinutes: wholeNumber(1, 1_000_000).default(60),
    requestHours: wholeNumber(24, 8_760).default(48),
    auditDays: wholeNumber(1, 3_650).default(90),
  }).prefault({}),
  server: section({
    listen: z
      .string({ error: listenAddressRule })
      .refine((value) => parseListenAddress(value) !== undefined, { error: listenAddressRule })
      .default("127.0.0.1:50051"),
    maxRequestBytes: wholeNumber(2_097_152, 67_108_864).default(8 * 1024 * 1024),
    logLevel: oneOf(["debug", "info", "warn", "error", "silent"]).default("info"),
    drainNoticeMs: wholeNumber(0, 60_000).default(500),
    drainGraceSeconds: wholeNumber(1, 600).default(20),
    keepaliveSeconds: wholeNumber(1, 3_600).default(30),
    tls: section({
      certFile: text("a PEM file with the server's certificate chain"),
      keyFile: text("a PEM file with the server's private key"),
      clientCaFile: text("a PEM file with the authorities whose client certificates are accepted").exactOptional(),
    }).exactOptional(),
    auth: authSchema.prefault({}),
  })
    .prefault({})
    .refine(({ auth, tls }) => auth.certificates === undefined || tls?.clientCaFile !== undefined, {
      path: ["auth", "certificates"],
      error: "server.tls.clientCaFile beside it: without it no client is asked for a certificate",
    })
    .refine((server) => server.drainNoticeMs < server.drainGraceSeconds * 1_000, {
      path: ["drainNoticeMs"],
      error: "less than drainGraceSeconds, so that streams end with a reason before they are cut",
    }),
}).superRefine((config, context) => {
  for (const { path, input, message } of checkCatalog(config)) {
    context.addIssue({ code: "custom", path: [...path], input, message });
  }
});

type DeepReadonly<T> = T extends readonly (infer Item)[]
  ? readonly DeepReadonly<Item>[]
  : T extends object
    ? { readonly [K in keyof T]: DeepReadonly<T[K]> }
    : T;

/** The configuration with all defaults filled in. Exactly one agent of the list is the default one. */
export type Config = DeepReadonly<z.output<typeof configSchema>>;

/** How callers prove who they are. */
export type AuthConfig = Config["server"]["auth"];

/** Where certificate, key and client authorities are read from. */
export type TlsFiles = NonNullable<Config["server"]["tls"]>;

/** An agent as its runs see it: its own settings over the defaults. */
export interface AgentConfig {
  readonly id: string;
  readonly name?: string;
  readonly default: boolean;
  readonly model?: string;
  readonly thinking?: string;
  /** 0 = no limit. */
  readonly runTimeoutSeconds: number;
  readonly sandboxed: boolean;
}

/** What an agent may spawn, and what sessions get that are spawned for it when the spawn names nothing else. */
export interface SubagentSettings {
  /** Agents that it may spawn itself; absent = itself alone. */
  readonly allowAgents?: readonly string[];
  readonly model?: string;
  readonly thinking?: string;
  /** 0 = no limit. */
  readonly runTimeoutSeconds: number;
}

/** What applies where no file says otherwise. */
export function defaultConfig(): Config {
  return configSchema.parse({});
}

/** Checks a configuration and fills in the defaults. Throws ConfigError with every problem: path, value, expected. */
export function parseConfig(value: unknown): Config {
  const parsed = configSchema.safeParse(value);
  if (!parsed.success) throw toConfigError(parsed.error, value, configSchema);
  return parsed.data;
}

/** Settings of a configured agent; undefined when no such agent is configured. */
export function agentConfig(config: Config, id: string): AgentConfig | undefined {
  const agent = config.agents.list.find((entry) => entry.id === id);
  if (agent === undefined) return undefined;
  const { defaults } = config.agents;
  const { name, model = defaults.model, thinking = defaults.thinking } = agent;
  return {
    id,
    default: agent.default === true,
    runTimeoutSeconds: agent.runTimeoutSeconds ?? defaults.runTimeoutSeconds,
    sandboxed: (agent.sandbox?.mode ?? defaults.sandbox.mode) === "all",
    ...(name !== undefined && { name }),
    ...(model !== undefined && { model }),
    ...(thinking !== undefined && { thinking }),
  };
}

/** What is configured about an agent and spawning; model and thinking level are absent where those of the agent apply (S6.1). */
export function subagentSettings(config: Config, agentId: string): SubagentSettings {
  const { model, thinking, runTimeoutSeconds } = config.agents.defaults.subagents;
  const own = config.agents.list.find(({ id }) => id === agentId)?.subagents;
  const chosen = { model: own?.model ?? model, thinking: own?.thinking ?? thinking };
  return {
    runTimeoutSeconds,
    ...(own?.allowAgents && { allowAgents: own.allowAgents }),
    ...(chosen.model !== undefined && { model: chosen.model }),
    ...(chosen.thinking !== undefined && { thinking: chosen.thinking }),
  };
}

/** Whether runs of an agent execute in a sandbox. Of an agent that is not configured nobody knows: it counts as sandboxed (S6.5). */
export function isSandboxed(config: Config, agentId: string): boolean {
  return agentConfig(config, agentId)?.sandboxed ?? true;
}

/** The agent that "main" means for a caller without a session of its own. */
export function defaultAgentId(config: Config): string {
  return config.agents.list.find((agent) => agent.default)!.id;
}

/** Ids of the configured agents, in the order of the file. */
export function configuredAgentIds(config: Config): string[] {
  return config.agents.list.map((agent) => agent.id);
}
