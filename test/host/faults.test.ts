import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, type ServiceImpl } from "@connectrpc/connect";
import { afterEach, expect, test } from "vitest";
import { HostService, HeartbeatResult_State as LeaseState } from "../../src/client/index.ts";
import {
  type AgentFunction,
  type AgentHost,
  createAgentHost,
  drainOnSignals,
  type Turn,
  TurnEnded,
} from "../../src/host/index.ts";
import { fakeService } from "../support/fake-service.ts";

const RUN_ID = "0198a000-0000-7000-8000-000000000001";

let started: AgentHost[] = [];
afterEach(async () => {
  await Promise.all(started.map((host) => host.stop()));
  started = [];
});

/** What the service was told, in order: "claim", "beat", "append", "complete", "fail", "release". */
interface Told {
  readonly calls: string[];
  readonly claimIds: string[];
}

/** A service with one run to claim; a test replaces the methods it wants to fail. */
async function serviceWithOneRun(
  faults: Partial<ServiceImpl<typeof HostService>> = {},
  leaseTtlMs = 600,
): Promise<Told & { baseUrl: string; run(agent: AgentFunction): Promise<AgentHost> }> {
  const told: Told = { calls: [], claimIds: [] };
  let claimed = false;
  const told_ = (call: string) => told.calls.push(call);
  const service: Partial<ServiceImpl<typeof HostService>> = {
    registerHost: () => ({}),
    drainHost: () => ({}),
    claimRuns: async ({ requestId }, context) => {
      told_("claim");
      told.claimIds.push(requestId);
      if (claimed) {
        await new Promise<void>((resolve) => {
          const timer = setTimeout(resolve, 200);
          context.signal.addEventListener("abort", () => {
            clearTimeout(timer);
            resolve();
          });
        });
        return {};
      }
      claimed = true;
      return { runs: [aClaimedRun(leaseTtlMs)] };
    },
    heartbeatRuns: async ({ items, waitTimeout }, context) => {
      told_("beat");
      const parkedMs = Number(waitTimeout?.nanos ?? 0) / 1e6;
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, parkedMs);
        context.signal.addEventListener("abort", () => {
          clearTimeout(timer);
          resolve();
        });
      });
      return { results: items.map(({ runId }) => ({ runId, state: LeaseState.HELD })) };
    },
    appendRunEvents: ({ firstClientSequence, events }) => {
      told_("append");
      return { acceptedClientSequence: firstClientSequence + BigInt(events.length) - 1n };
    },
    completeRun: () => {
      told_("complete");
      return {};
    },
    failRun: () => {
      told_("fail");
      return {};
    },
    releaseRun: () => {
      told_("release");
      return {};
    },
    ...faults,
  };
  const { baseUrl } = await fakeService((router) => router.service(HostService, service));
  const run = async (agent: AgentFunction) => {
    const host = createAgentHost({ baseUrl, hostId: "h", agents: { nova: agent }, maxConcurrentRuns: 1 });
    started.push(host);
    await host.start();
    return host;
  };
  return { ...told, baseUrl, run };
}

function aClaimedRun(leaseTtlMs: number) {
  return {
    run: { runId: RUN_ID, agentId: "nova", attempt: 1 },
    leaseToken: "lease",
    runToken: "token",
    leaseTtl: durationFromMs(leaseTtlMs),
    startDeadline: durationFromMs(leaseTtlMs),
    input: { messages: [] },
  };
}

/** Resolves with why a turn was aborted. */
function abortOf(turn: Turn): Promise<TurnEnded> {
  return new Promise((resolve) =>
    turn.signal.addEventListener("abort", () => resolve(turn.signal.reason as TurnEnded)),
  );
}

test("the agent starts after the first beat was answered, and a run outlives its first lease by beats", async () => {
  const service = await serviceWithOneRun();
  const done = Promise.withResolvers<string[]>();
  await service.run(async () => {
    const before = [...service.calls];
    await new Promise((resolve) => setTimeout(resolve, 900));
    done.resolve(before);
    return "done";
  });
  expect((await done.promise).slice(0, 2)).toEqual(["claim", "beat"]);
  await expect.poll(() => service.calls).toContain("complete");
  expect(service.calls.filter((call) => call === "beat").length).toBeGreaterThanOrEqual(3);
});

test("the host gives a run up before its lease can have ended when no beat gets through", async () => {
  const leaseTtlMs = 1_500;
  let beatAt = 0;
  const service = await serviceWithOneRun(
    {
      heartbeatRuns: ({ items }) => {
        if (beatAt > 0) throw new ConnectError("away", Code.Unavailable);
        beatAt = performance.now();
        return { results: items.map(({ runId }) => ({ runId, state: LeaseState.HELD })) };
      },
    },
    leaseTtlMs,
  );
  const aborted = Promise.withResolvers<{ reason: TurnEnded; at: number }>();
  await service.run(async (turn) => {
    const reason = await abortOf(turn);
    aborted.resolve({ reason, at: performance.now() });
    return "too late";
  });
  const { reason, at } = await aborted.promise;
  expect(reason).toBeInstanceOf(TurnEnded);
  expect(reason.ending).toBe("lease_lost");
  expect(at - beatAt).toBeLessThan(leaseTtlMs);
  await expect.poll(() => service.claimIds.length).toBeGreaterThan(1);
  expect(service.calls).not.toContain("complete");
  expect(service.calls).not.toContain("fail");
});

test("C150: a host whose event loop was blocked past the lease sends nothing more", async () => {
  const service = await serviceWithOneRun();
  await service.run(async (turn) => {
    const until = performance.now() + 700;
    while (performance.now() < until);
    await turn.say("late");
    return "late";
  });
  await expect.poll(() => service.claimIds.length).toBeGreaterThan(1);
  expect(service.calls).not.toContain("complete");
  expect(service.calls).not.toContain("append");
});

test("a claim whose answer was lost is asked for again with the same request id", async () => {
  let claims = 0;
  const ids: string[] = [];
  const service = await serviceWithOneRun({
    claimRuns: ({ requestId }) => {
      ids.push(requestId);
      claims++;
      if (claims <= 2) throw new ConnectError("lost", Code.Unavailable);
      return claims === 3 ? { runs: [aClaimedRun(600)] } : { draining: true };
    },
  });
  await service.run(async () => "done");
  await expect.poll(() => service.calls).toContain("complete");
  expect(new Set(ids.slice(0, 3)).size).toBe(1);
  await expect.poll(() => ids.length).toBeGreaterThan(3);
  expect(ids[3]).not.toBe(ids[0]);
});

test("completing is repeated while the lease lives", async () => {
  let completions = 0;
  const service = await serviceWithOneRun({
    completeRun: () => {
      completions++;
      if (completions < 3) throw new ConnectError("away", Code.Unavailable);
      return {};
    },
  });
  const host = await service.run(async () => "done");
  await expect.poll(() => completions).toBe(3);
  await expect.poll(() => host.activeRuns).toBe(0);
  expect(service.calls).not.toContain("fail");
});

test("a refused reply fails the run instead of leaving it to its lease", async () => {
  const service = await serviceWithOneRun({
    completeRun: () => {
      throw new ConnectError("message.parts: too large", Code.InvalidArgument);
    },
  });
  await service.run(async () => "done");
  await expect.poll(() => service.calls).toContain("fail");
});

test("a lost lease ends the turn quietly, also for texts that nobody awaits", async () => {
  const service = await serviceWithOneRun({
    appendRunEvents: () => {
      throw new ConnectError("gone", Code.NotFound);
    },
  });
  await service.run(async (turn) => {
    void turn.say("one");
    void turn.note("two");
    await turn.say("three");
    return "done";
  });
  await expect.poll(() => service.calls).toContain("fail");
});

test("stopping hands back a run of which nothing was stored", async () => {
  const service = await serviceWithOneRun();
  const host = await service.run(async (turn) => {
    await abortOf(turn);
    throw turn.signal.reason;
  });
  await expect.poll(() => host.activeRuns).toBe(1);
  await expect.poll(() => service.calls).toContain("beat");
  await host.stop();
  expect(service.calls).toContain("release");
  expect(service.calls).not.toContain("fail");
});

test("stopping leaves a run of which something was stored to its lease", async () => {
  const service = await serviceWithOneRun();
  const host = await service.run(async (turn) => {
    await turn.say("half");
    await abortOf(turn);
    throw turn.signal.reason;
  });
  await expect.poll(() => service.calls).toContain("append");
  await host.stop();
  expect(service.calls).not.toContain("release");
  expect(service.calls).not.toContain("fail");
  expect(service.calls).not.toContain("complete");
});

test("a first signal drains the host, a second one stops it", async () => {
  const service = await serviceWithOneRun();
  const host = await service.run(async (turn) => {
    await abortOf(turn);
    throw turn.signal.reason;
  });
  const forget = drainOnSignals(host, { signals: ["SIGUSR2"] });
  await expect.poll(() => service.calls).toContain("beat");
  process.emit("SIGUSR2");
  process.emit("SIGUSR2");
  await expect.poll(() => host.activeRuns).toBe(0);
  expect(service.calls).toContain("release");
  await expect.poll(() => process.listenerCount("SIGUSR2")).toBe(0);
  forget();
});
