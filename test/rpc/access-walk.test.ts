import { randomUUID } from "node:crypto";
import { Code, ConnectError } from "@connectrpc/connect";
import { beforeAll, describe, expect, test } from "vitest";
import { SessionVisibility } from "#gen/agentsessions/v1/session_service_pb.js";
import { visibilityRules } from "../../src/app/scope.ts";
import { startMessageExchange } from "../../src/app/start-exchange.ts";
import { type Config, isSandboxed } from "../../src/config/schema.ts";
import type { Role } from "../../src/domain/principal.ts";
import {
  effectiveVisibility,
  evaluateScope,
  isInScope,
  type Scope,
  scopeForChange,
} from "../../src/domain/visibility.ts";
import { accessTable } from "../../src/rpc/access.ts";
import { services } from "../../src/rpc/routes.ts";
import { exchangeInsert } from "../../src/store/exchanges.ts";
import {
  exchangeProbes,
  files,
  missingId,
  type Probes,
  resetProbe,
  runProbes,
  sessionProbes,
  wait,
} from "../support/access-probes.ts";
import {
  addFile,
  connectorToken,
  hostToken,
  makeWorld,
  settings,
  type World,
  type WorldTarget,
} from "../support/access-world.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { type TestClients, type TestServer, testServer } from "../support/server.ts";
import { readError } from "../support/wire-errors.ts";

const everyRpc = services.flatMap((service) => service.methods.map((method) => `${service.typeName}/${method.name}`));
const nova = ["nova", "boxed", "otter"];
const all = { sessions: { visibility: "all" } };

/** Settings whose servers share one database. */
const worlds: Record<string, Config> = {
  self: settings({ sessions: { visibility: "self" } }),
  tree: settings({}),
  agent: settings({ sessions: { visibility: "agent" } }),
  "all, alone": settings(all),
  "all, with otter": settings({ ...all, agentToAgent: { enabled: true, allow: nova } }),
  "all, with everybody": settings({ ...all, agentToAgent: { enabled: true } }),
  "all, sandbox lifted": settings({ ...all, agentToAgent: { enabled: true, allow: nova } }, "all"),
};

const servers = new Map<string, TestServer>();
const callers = new Map<string, World>();
/** One in which each session was asked, by its internal id. */
const exchanges = new Map<bigint, string>();
const hostAgents = ["otter", "box*"];
let tokens: Record<"host" | "connector", string>;

beforeAll(async () => {
  const app = await testApp({ config: worlds["tree"]! });
  for (const agentId of ["nova", "boxed"]) callers.set(agentId, await makeWorld(app, agentId));
  for (const { session, run } of [...callers.values()].flatMap(({ targets }) => Object.values(targets))) {
    const given = await addFile(app, session);
    for (const [name] of namesOf(session)) files.set(name, given);
    files.set(run.runId, await addFile(app, session, run));
    const asked = { session, route: undefined, request: "hi" };
    const started = startMessageExchange(app, asked);
    await exchangeInsert(started, app.clock.now()).execute(app.db);
    exchanges.set(session.id, started.exchangeId);
  }
  tokens = { host: await hostToken(app, hostAgents), connector: await connectorToken(app) };
  for (const [name, config] of Object.entries(worlds)) {
    const replica: TestApp = { ...(await testApp({ replicaOf: app, config })), ids: app.ids };
    servers.set(name, await testServer({ app: replica, config }));
  }
});

test("C125: every RPC has an access row, and no row is left over; else add it to src/rpc/access.ts", () => {
  expect([...accessTable.keys()].sort()).toEqual([...everyRpc].sort());
});

test("S6.7: every RPC that sessions reach goes by a tool, but these", () => {
  const open = [...accessTable].filter(([, { roles, tool }]) => roles.includes("session") && tool === undefined);
  expect(open.map(([rpc]) => rpc.split("/")[1])).toEqual(["ReadAttachment", "ListAgents"]);
  const closed = [...accessTable].filter(([, { roles, tool }]) => !roles.includes("session") && tool !== undefined);
  expect(closed).toEqual([]);
});

describe("roles", () => {
  const tokenOf: Record<Role, () => string | undefined> = {
    operator: () => undefined,
    host: () => tokens.host,
    connector: () => tokens.connector,
    session: () => callers.get("nova")!.token,
  };

  /** Calls an RPC with a body that claims to be of 4 GB: who may not call is told so before that. */
  async function statusFor(rpc: string, token: string | undefined): Promise<string> {
    const answer = await fetch(`${servers.get("tree")!.url}/${rpc}`, {
      method: "POST",
      headers: { "content-type": "application/grpc-web+proto", ...(token && { authorization: `Bearer ${token}` }) },
      body: new Uint8Array(100).fill(255),
    });
    const trailers = `${await answer.text()}${answer.headers.get("grpc-status") ?? ""}`;
    return Code[Number(/grpc-status: *(\d+)/.exec(trailers)?.[1])]!;
  }

  test.each(Object.entries(tokenOf))("%s: the door opens for the rows of the table alone", async (role, token) => {
    const found = await Promise.all(everyRpc.map(async (rpc) => [rpc, await statusFor(rpc, token())]));
    const expected = everyRpc.map((rpc) => [
      rpc,
      accessTable.get(rpc)!.roles.includes(role as Role) ? "ResourceExhausted" : "PermissionDenied",
    ]);
    expect(found).toEqual(expected);
  });
});

test("every RPC that names a session, a run or an exchange is walked", () => {
  const walked = [sessionProbes, resetProbe, runProbes, exchangeProbes]
    .flatMap(Object.keys)
    .map((name) => name.split(",")[0]!);
  const named = [...accessTable].filter(([, { verb }]) => ["list", "read", "send", "change"].includes(verb));
  expect(new Set(walked)).toEqual(new Set(named.map(([rpc]) => rpc.split("/")[1]!)));
});

/** Reasons that only a caller who passed the guard is given. */
const passed = new Set(["ETAG_MISMATCH", "SESSION_SUPERSEDED"]);

/** "allowed", or the refusal as it came over the wire, its own words about the name aside. */
async function outcomeOf(call: Promise<unknown>, name = "\n"): Promise<string> {
  try {
    await call;
    return "allowed";
  } catch (error) {
    const wire = ConnectError.from(error);
    const { reason, ...rest } = readError(wire);
    if (passed.has(reason ?? "")) return "allowed";
    const details = wire.details.map((each) => ("type" in each ? each.type : each.desc.typeName));
    const refusal = JSON.stringify({ reason, ...rest, details });
    return [name, files.get(name) ?? name].reduce((text, own) => text.replaceAll(own, "NAME"), refusal);
  }
}

function verbOf(probe: string): "read" | "send" | "change" {
  const name = probe.split(",")[0]!;
  const [, access] = [...accessTable].find(([rpc]) => rpc.endsWith(`/${name}`))!;
  return access.verb === "send" || access.verb === "change" ? access.verb : "read";
}

interface Walk {
  readonly scope: Scope;
  readonly world: World;
  readonly clients: TestClients;
  /** Whether this caller's role may call the RPC at all. */
  mayCall(probe: string): boolean;
}

function reaches({ scope, world }: Walk, probe: string, { session, run }: WorldTarget, isRun: boolean): boolean {
  if (session.reserved) return false;
  if (isRun && "requester" in scope && run.provenance.sourceSessionId === world.targets["own"]!.session.sessionId)
    return true;
  return isInScope(verbOf(probe) === "change" ? scopeForChange(scope) : scope, session);
}

/** Calls each RPC about an exchange in which each session was asked; one side in reach is enough, that it was sent there is not. */
async function walkExchanges({ clients, scope, world }: Walk): Promise<void> {
  for (const call of Object.values(exchangeProbes)) {
    const nobodys = await outcomeOf(call(clients, missingId), missingId);
    for (const [relation, { session }] of Object.entries(world.targets)) {
      const exchangeId = exchanges.get(session.id)!;
      const allowed = !session.reserved && isInScope(scope, session);
      const found = await outcomeOf(call(clients, exchangeId), exchangeId);
      expect([relation, found]).toEqual([relation, allowed ? "allowed" : nobodys]);
    }
  }
}

async function listExchangeIds({ runs }: TestClients): Promise<Set<string>> {
  const ids = new Set<string>();
  let pageToken = "";
  do {
    const page = await runs.listExchanges({ pageSize: 200, pageToken });
    for (const { exchangeId } of page.exchanges) ids.add(exchangeId);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return ids;
}

/** Calls each RPC about each session or run, by key and by id, and about one of each kind that is not there. */
async function walk(caller: Walk, probes: Probes, isRun: boolean): Promise<void> {
  for (const [probe, call] of Object.entries(probes)) {
    const missing = new Map<string, Promise<string>>();
    const ofMissing = (name: string) => {
      if (!missing.has(name)) missing.set(name, outcomeOf(call(caller.clients, name), name));
      return missing.get(name)!;
    };
    const rows = Object.entries(caller.world.targets).flatMap(([relation, target]) =>
      (isRun ? [[target.run.runId, missingId] as const] : namesOf(target.session)).map(async ([name, nobody]) => {
        const [outcome, nobodys] = await Promise.all([outcomeOf(call(caller.clients, name), name), ofMissing(nobody)]);
        const allowed = caller.mayCall(probe) && reaches(caller, probe, target, isRun);
        return {
          found: [probe, relation, outcome],
          expected: [probe, relation, allowed ? "allowed" : nobodys],
          nobodys,
        };
      }),
    );
    const done = await Promise.all(rows);
    expect(done.map(({ nobodys }) => nobodys)).not.toContain("allowed");
    expect(done.map(({ found }) => found)).toEqual(done.map(({ expected }) => expected));
  }
}

/** A key leads to the incarnation that has it now: earlier ones are named by id alone. */
function namesOf({ sessionId, sessionKey, agentId, state, reserved }: WorldTarget["session"]) {
  const byId = [sessionId, missingId] as const;
  if (state === "superseded" || reserved) return [byId];
  return [byId, [sessionKey, `agent:${agentId}:direct:${missingId}`] as const];
}

async function listRunIds(runs: TestClients["runs"]): Promise<Set<string>> {
  const ids = new Set<string>();
  let pageToken = "";
  do {
    const page = await runs.listRuns({ pageSize: 200, pageToken });
    for (const { runId } of page.runs) ids.add(runId);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return ids;
}

describe.each(Object.keys(worlds))("visibility %s", (setting) => {
  describe.each(["nova", "boxed"])("a session of %s", (agentId) => {
    let caller: Walk;
    let config: Config;
    beforeAll(() => {
      config = worlds[setting]!;
      const world = callers.get(agentId)!;
      const scope = evaluateScope(visibilityRules(config), world.requester, isSandboxed(config, agentId));
      const clients = servers.get(setting)!.clients("grpc", { token: world.token });
      caller = { scope, world, clients, mayCall: () => true };
    });

    test("C17, C41, C121, C124, C126: sees and changes what its scope says, and nothing else is there", async () => {
      await walk(caller, sessionProbes, false);
    });

    test("C125: so with runs, which are named by id", async () => {
      await walk(caller, runProbes, true);
    });

    test("so with exchanges", async () => {
      await walkExchanges(caller);
      const listed = await listExchangeIds(caller.clients);
      for (const { session } of [...callers.values()].flatMap(({ targets }) => Object.values(targets))) {
        const visible = !session.reserved && isInScope(caller.scope, session);
        expect(listed.has(exchanges.get(session.id)!)).toBe(visible);
      }
    });

    test("C96, S3.5: lists what it sees, and says that there is more", async () => {
      const { sessions, runs } = caller.clients;
      const list = async (archived: boolean) => (await sessions.listSessions({ archived, pageSize: 200 })).sessions;
      const keys = [...(await list(false)), ...(await list(true))].map(({ sessionKey }) => sessionKey);
      const { visibility, hiddenByVisibility } = await sessions.listSessions({});
      const targets = [...callers.values()].flatMap(({ targets }) => Object.values(targets));
      const listed = targets.filter(
        ({ session }) => session.state !== "superseded" && !session.reserved && isInScope(caller.scope, session),
      );
      expect(new Set(keys)).toEqual(new Set(listed.map(({ session }) => session.sessionKey)));
      const effective = effectiveVisibility(visibilityRules(config), isSandboxed(config, agentId));
      expect(SessionVisibility[visibility]).toBe(effective.toUpperCase());
      expect(hiddenByVisibility).toBe(!(effective === "all" && setting === "all, with everybody"));
      const ids = await listRunIds(runs);
      for (const target of targets) expect(ids.has(target.run.runId)).toBe(reaches(caller, "GetRun", target, true));
    });

    test("an agent may not change the policy that binds it", async () => {
      const change = { updateMask: { paths: ["send_policy"] }, settings: { sendPolicy: 1 } };
      const request = { requestId: randomUUID(), session: "current", ...change };
      expect(await outcomeOf(caller.clients.sessions.updateSession(request))).toContain("ROLE_DENIED");
    });
  });
});

describe("an agent host", () => {
  let caller: Walk;
  beforeAll(() => {
    const clients = servers.get("tree")!.clients("grpc", { token: tokens.host });
    const roles = (probe: string) =>
      [...accessTable].find(([rpc]) => rpc.endsWith(`/${probe.split(",")[0]}`))![1].roles;
    const scope: Scope = { kind: "agents", patterns: hostAgents };
    caller = { scope, world: callers.get("nova")!, clients, mayCall: (probe) => roles(probe).includes("host") };
  });

  test("reads sessions and runs of its agents, and changes none", async () => {
    await walk(caller, { ...sessionProbes, ...resetProbe }, false);
    await walk(caller, runProbes, true);
    await walkExchanges(caller);
    const { sessions, visibility, hiddenByVisibility } = await caller.clients.sessions.listSessions({ pageSize: 200 });
    expect(new Set(sessions.map((session) => session.agentId))).toEqual(new Set(["otter", "boxed"]));
    expect([visibility, hiddenByVisibility]).toEqual([SessionVisibility.UNSPECIFIED, false]);
  });

  test("serves its agents alone, and takes the place of no host that serves others", async () => {
    const { hosts } = caller.clients;
    const instanceId = randomUUID();
    const register = (hostId: string, agentId: string) =>
      hosts.registerHost({ requestId: randomUUID(), hostId, instanceId, agents: [{ agentId }] });
    const claim = (hostId: string, agentIds: string[]) =>
      hosts.claimRuns({ requestId: randomUUID(), hostId, instanceId, agentIds, waitTimeout: wait });
    expect(await outcomeOf(register("mine", "otter"))).toBe("allowed");
    expect(await outcomeOf(claim("mine", ["otter", "boxed"]))).toBe("allowed");
    expect(await outcomeOf(register("mine", "nova"))).toContain('"agent_id":"nova"');
    expect(await outcomeOf(claim("mine", ["otter", "nova"]))).toContain("AGENT_DENIED");
    const operator = servers.get("tree")!.clients();
    await operator.hosts.registerHost({
      requestId: randomUUID(),
      hostId: "of-nova",
      instanceId: randomUUID(),
      agents: [{ agentId: "nova" }],
    });
    for (const call of [
      () => register("of-nova", "otter"),
      () => claim("of-nova", ["otter"]),
      () => hosts.drainHost({ requestId: randomUUID(), hostId: "of-nova", instanceId }),
    ]) {
      expect(await outcomeOf(call())).toContain('"host_id":"of-nova"');
    }
  });
});

test("C130: a caller is who its token says, whatever it names; a run token serves no runs", async () => {
  const { token, targets } = callers.get("boxed")!;
  const { sessions, runs } = servers.get("tree")!.clients("grpc", { token });
  const sent = await sessions.sendMessage({
    requestId: randomUUID(),
    session: targets["child"]!.session.sessionKey,
    message: "from whom?",
    waitTimeout: wait,
  });
  expect(sent.run?.provenance).toMatchObject({ sourceSessionKey: targets["own"]!.session.sessionKey });
  expect((await runs.getRun({ runId: sent.run!.runId })).run?.runId).toBe(sent.run!.runId);
});

describe("last", () => {
  test.each(["nova", "boxed"])(
    "C116: %s resets what it may change; its key and its old identity stay its own",
    async (agentId) => {
      const world = callers.get(agentId)!;
      const config = worlds["agent"]!;
      const scope = evaluateScope(visibilityRules(config), world.requester, isSandboxed(config, agentId));
      const clients = servers.get("agent")!.clients("grpc", { token: world.token });
      await walk({ scope, world, clients, mayCall: () => true }, resetProbe, false);
      const byId = await clients.sessions.getSession({ session: "current" });
      const byKey = await clients.sessions.getSession({ session: world.targets["own"]!.session.sessionKey });
      expect(byId.session?.sessionId).toBe(world.targets["own"]!.session.sessionId);
      expect(byKey.session?.sessionId).not.toBe(byId.session?.sessionId);
    },
  );
});
