import { beforeAll, describe, expect, test } from "vitest";
import type { App } from "../../src/app/context.ts";
import { getRun } from "../../src/app/get-run.ts";
import { listRuns } from "../../src/app/list-runs.ts";
import type { Principal } from "../../src/domain/principal.ts";
import type { Run } from "../../src/domain/run.ts";
import { testApp } from "../support/app.ts";
import { addHost, addRun, addRuns, addSession, end, hold } from "../support/runs-by-hand.ts";

const operator: Principal = { role: "operator", name: "local" };

let app: App;
beforeAll(async () => {
  app = await testApp();
});

function ids(runs: readonly Run[]): string[] {
  return runs.map((run) => run.runId);
}

describe("what a queued run waits for", () => {
  test("C38: behind a held run, each knows its place and the run ahead", async () => {
    const session = await addSession(app);
    const [held, second, third] = await addRuns(app, session, 3);
    await hold(app, held!);
    expect(await getRun(app, operator, held!.runId)).not.toHaveProperty("queue");
    const { runs } = await listRuns(app, operator, { pageSize: 50, session: session.sessionId, states: [] });
    expect(runs.map((run) => run.queue)).toEqual([
      { reason: "behind_run", position: 2, aheadRunId: held!.runId },
      { reason: "behind_run", position: 1, aheadRunId: held!.runId },
      undefined,
    ]);
    expect(ids(runs)).toEqual(ids([third!, second!, held!]));
  });

  test("C56: the head of a line says when no host serves its agent", async () => {
    const session = await addSession(app, { agentId: "lark" });
    const [head, behind] = await addRuns(app, session, 2);
    const queues = async () => [
      (await getRun(app, operator, head!.runId)).queue,
      (await getRun(app, operator, behind!.runId)).queue,
    ];
    expect(await queues()).toEqual([
      { reason: "no_host", position: 1 },
      { reason: "behind_run", position: 2, aheadRunId: head!.runId },
    ]);
    await addHost(app, ["lark"], new Date(app.clock.now().getTime() - 3_600_000));
    await addHost(app, ["otter"]);
    expect((await queues())[0]).toEqual({ reason: "no_host", position: 1 });
    await addHost(app, ["otter", "lark"]);
    expect((await queues())[0]).toEqual({ reason: "waiting_for_host", position: 1 });
    await app.db.updateTable("hosts").set({ drained_at: app.clock.now() }).execute();
    expect((await queues())[0]).toEqual({ reason: "no_host", position: 1 });
  });

  test("a failed attempt that waits for its next try says until when", async () => {
    const [run] = await addRuns(app, await addSession(app), 1);
    const readyAt = new Date(app.clock.now().getTime() + 5000);
    await app.db.updateTable("runs").set({ attempt: 1, ready_at: readyAt }).where("id", "=", run!.id).execute();
    expect((await getRun(app, operator, run!.runId)).queue).toEqual({
      reason: "retry_backoff",
      position: 1,
      nextAttemptAt: readyAt,
    });
  });
});

describe("list", () => {
  test("C40: runs are found by their session and by the session that sent them, with their times", async () => {
    const [source, target] = [await addSession(app, { agentId: "nova" }), await addSession(app, { agentId: "quill" })];
    const sent = await addRun(app, target, source);
    const own = await addRun(app, target);
    await hold(app, sent);
    await end(app, sent);
    const bySource = await listRuns(app, operator, { pageSize: 50, sourceSession: source.sessionKey, states: [] });
    expect(ids(bySource.runs)).toEqual([sent.runId]);
    expect(bySource.runs[0]).toMatchObject({
      createdAt: expect.any(Date),
      claimedAt: expect.any(Date),
      endedAt: expect.any(Date),
    });
    const byTarget = await listRuns(app, operator, { pageSize: 50, session: target.sessionKey, states: [] });
    expect(ids(byTarget.runs)).toEqual(ids([own, sent]));
    const byAgent = await listRuns(app, operator, { pageSize: 50, agentId: "quill", states: ["ready", "waiting"] });
    expect(ids(byAgent.runs)).toEqual([own.runId]);
  });

  test("pages join without a gap or a repeat, also while runs are added and end", async () => {
    const session = await addSession(app, { agentId: "ember" });
    const runs = await addRuns(app, session, 7);
    const seen: string[] = [];
    let before: bigint | undefined;
    do {
      const page = await listRuns(app, operator, { pageSize: 3, agentId: "ember", states: [] }, before);
      seen.push(...ids(page.runs));
      before = page.next;
      await addRun(app, session);
    } while (before !== undefined);
    expect(seen).toEqual(ids(runs.toReversed()));
  });

  test("states: every combination finds what a plain filter finds", async () => {
    const wanted = [
      ["waiting", "ready"],
      ["running"],
      ["completed"],
      ["failed", "canceled"],
      ["timed_out"],
      ["running", "failed"],
    ] as const;
    const session = await addSession(app, { agentId: "mixed" });
    const others = await Promise.all(
      ["completed", "failed", "canceled", "timed_out"].map(() => addSession(app, { agentId: "mixed" })),
    );
    const [held] = await addRuns(app, session, 2);
    await hold(app, held!);
    const states = ["completed", "failed", "canceled", "timed_out"] as const;
    for (const [place, state] of states.entries()) await end(app, await addRun(app, others[place]!), state);
    await addRun(app, others[0]!);
    const all = (await listRuns(app, operator, { pageSize: 50, agentId: "mixed", states: [] })).runs;
    expect(all).toHaveLength(7);
    for (const some of wanted) {
      const found = await listRuns(app, operator, { pageSize: 50, agentId: "mixed", states: some });
      expect(ids(found.runs)).toEqual(ids(all.filter((run) => (some as readonly string[]).includes(run.state))));
    }
  });

  test("a filter that names no session is an error, not an empty list", async () => {
    const session = "7b0a9c7e-6f0d-4c5e-9d3a-3f2f4a1b2c3d";
    await expect(listRuns(app, operator, { pageSize: 50, session, states: [] })).rejects.toMatchObject({
      facts: { kind: "session_not_found" },
    });
  });

  test("C166: runs of a deleted session stay readable by their id", async () => {
    const session = await addSession(app);
    const run = await addRun(app, session);
    await end(app, run, "completed", "kept");
    await app.db.updateTable("sessions").set({ state: 4 }).where("id", "=", session.id).execute();
    expect(await getRun(app, operator, run.runId)).toMatchObject({ state: "completed", reply: "kept" });
  });
});
