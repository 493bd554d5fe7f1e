import { randomUUID } from "node:crypto";
import { beforeEach, describe, expect, test } from "vitest";
import { type WaitRunsInput, waitRuns } from "../../src/app/wait-runs.ts";
import type { Principal } from "../../src/domain/principal.ts";
import type { Run } from "../../src/domain/run.ts";
import type { Session } from "../../src/domain/session.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { end } from "../support/runs-by-hand.ts";
import { actingAs, addSession, fleet, idsOf, openFleet, operator, send } from "../support/session-tools.ts";

let app: TestApp;
let sessions: Session[];
let runs: Run[];
beforeEach(async () => {
  app = await testApp({ config: openFleet });
  const keys = ["agent:nova:main", "agent:otter:main", "agent:quill:main"];
  sessions = await Promise.all(keys.map((key) => addSession(app, key)));
  runs = [];
  for (const { sessionKey } of sessions) runs.push((await send(app, { session: sessionKey })).run);
});

const hour = 3_600_000;
const wait = (fields: Partial<WaitRunsInput> = {}, principal: Principal = operator) =>
  waitRuns(app, principal, { runIds: idsOf(runs), timeoutMs: hour, ...fields });
const waitRows = () => app.db.selectFrom("waits").selectAll().execute();
const statesOf = (found: readonly Run[]) => found.map(({ state }) => state);

describe("waiting for several runs", () => {
  test("for all ends with the last, and gives each as it is, in the order asked for", async () => {
    const waiting = wait({ runIds: idsOf(runs).toReversed() });
    let over = false;
    void waiting.then(() => {
      over = true;
    });
    await end(app, runs[0]!, "completed", "one");
    await end(app, runs[2]!, "failed");
    expect(await wait({ timeoutMs: 0 })).toMatchObject({ reached: false, ended: 2 });
    expect(over).toBe(false);
    await end(app, runs[1]!, "canceled");
    const result = await waiting;
    expect(result).toMatchObject({ reached: true, ended: 3, runs: [{}, {}, { reply: "one" }] });
    expect(idsOf(result.runs)).toEqual(idsOf(runs).toReversed());
    expect(statesOf(result.runs)).toEqual(["failed", "canceled", "completed"]);
  });

  test("for any ends with the first; the others are shown as they are then", async () => {
    const waiting = wait({ count: 1 });
    await end(app, runs[1]!, "completed", "two");
    const result = await waiting;
    expect(result).toMatchObject({ reached: true, ended: 1 });
    expect(statesOf(result.runs)).toEqual(["ready", "completed", "ready"]);
    expect(result.runs[0]).toMatchObject({ queue: { reason: "no_host" } });
  });

  test("runs that had ended before count, also when they are enough", async () => {
    await end(app, runs[0]!);
    const waiting = wait({ count: 2 });
    await end(app, runs[2]!);
    expect(await waiting).toMatchObject({ reached: true, ended: 2 });
    expect(await wait({ count: 2 })).toMatchObject({ reached: true, ended: 2 });
  });

  test("time that runs out is an answer with what there is, and 0 looks once", async () => {
    await end(app, runs[0]!);
    expect(await wait({ timeoutMs: 20 })).toMatchObject({ reached: false, ended: 1 });
    expect(await wait({ timeoutMs: 0 })).toMatchObject({ reached: false, ended: 1 });
    expect(await wait({ timeoutMs: 0, count: 1 })).toMatchObject({ reached: true, ended: 1 });
  });

  test("C142: a caller that leaves cancels nothing", async () => {
    const caller = new AbortController();
    const waiting = wait({ signal: caller.signal });
    caller.abort();
    expect(await waiting).toMatchObject({ reached: false, ended: 0 });
  });

  test("a draining process sends the caller to another one", async () => {
    const waiting = wait();
    app.drain();
    await expect(waiting).rejects.toMatchObject({ facts: { kind: "draining" } });
    expect(await wait({ timeoutMs: 0 })).toMatchObject({ reached: false });
  });

  test.each([
    [{ count: 4 }, "count"],
    [{ runIds: ["same", "same"] }, "run_ids"],
  ])("%j is refused", async (fields, field) => {
    await expect(wait(fields)).rejects.toMatchObject({ facts: { kind: "field_invalid", violations: [{ field }] } });
  });
});

describe("who may wait", () => {
  test("C125: one run that is hidden or not there refuses the call, as WaitRun does", async () => {
    const narrow = { ...app, config: fleet };
    const own = idsOf(runs.slice(0, 1));
    const ask = (runIds: string[]) =>
      waitRuns(narrow, actingAs(sessions[0]!), { runIds: [...own, ...runIds], timeoutMs: 0 });
    expect(await ask([])).toMatchObject({ reached: false });
    const hidden = await ask([runs[1]!.runId]).catch((error) => error.facts);
    expect(hidden).toMatchObject({ kind: "visibility_denied" });
    expect(await ask([randomUUID()]).catch((error) => error.facts)).toEqual(hidden);
    const missing = randomUUID();
    await expect(wait({ runIds: [...own, missing] })).rejects.toMatchObject({
      facts: { kind: "run_not_found", runId: missing },
    });
  });

  test("C113: replies of other sessions come with their secrets masked", async () => {
    const secret = `sk-${"a1B2".repeat(12)}`;
    await end(app, runs[0]!, "completed", secret);
    await end(app, runs[1]!, "completed", secret);
    const [own, foreign] = (await wait({ count: 2, timeoutMs: 0 }, actingAs(sessions[0]!))).runs;
    expect(own!.reply).toBe(secret);
    expect(foreign!.reply).not.toContain(secret);
  });
});

describe("S5.10: a session waits for all of them at once", () => {
  const others = () => idsOf(runs.slice(1));

  test("C148: a target may not come to wait for it meanwhile, and may afterwards", async () => {
    const [nova, otter, quill] = sessions as [Session, Session, Session];
    const waiting = wait({ runIds: others() }, actingAs(nova));
    await expect.poll(waitRows).toHaveLength(2);
    for (const target of [otter, quill]) {
      const cycle = [target, nova, target].map(({ sessionKey }) => sessionKey);
      const back = { session: nova.sessionKey, principal: actingAs(target), waitTimeoutMs: hour };
      await expect(send(app, back)).rejects.toMatchObject({ facts: { kind: "wait_cycle", cycle } });
    }
    for (const run of runs.slice(1)) await end(app, run);
    expect(await waiting).toMatchObject({ reached: true });
    expect(await waitRows()).toEqual([]);
  });

  test("C6: a cycle through one of them refuses all, and registers nothing", async () => {
    const [nova, otter, quill] = sessions as [Session, Session, Session];
    const leaving = new AbortController();
    const waiting = wait({ runIds: [runs[0]!.runId], signal: leaving.signal }, actingAs(quill));
    await expect.poll(waitRows).toHaveLength(1);
    await expect(wait({ runIds: others() }, actingAs(nova))).rejects.toMatchObject({
      facts: { kind: "wait_cycle", cycle: [nova.sessionKey, quill.sessionKey, nova.sessionKey] },
    });
    await expect(wait({}, actingAs(otter))).rejects.toMatchObject({
      facts: { kind: "wait_cycle", cycle: [otter.sessionKey, otter.sessionKey] },
    });
    expect(await waitRows()).toHaveLength(1);
    leaving.abort();
    await waiting;
  });

  test("runs that have ended, and looks, close no cycle", async () => {
    await end(app, runs[0]!);
    const [nova] = sessions as [Session];
    expect(await wait({ count: 1 }, actingAs(nova))).toMatchObject({ reached: true });
    expect(await wait({ timeoutMs: 0 }, actingAs(nova))).toMatchObject({ reached: false });
  });
});
