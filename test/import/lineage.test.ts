import { beforeEach, describe, expect, it } from "vitest";
import { deleteSession } from "../../src/store/sessions.ts";
import { inTransaction } from "../../src/store/transaction.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { id, reasons, row, runImport, sessionRow, stateDirectory, texts, transcript } from "./support.ts";

const store = "agents/main/sessions/sessions.json";

let app: TestApp;

beforeEach(async () => {
  app = await testApp();
});

async function parentsOf(...numbers: number[]): Promise<(number | undefined)[]> {
  const rows = await Promise.all(numbers.map((n) => sessionRow(app, id(n))));
  const all = await app.db.selectFrom("sessions").select(["id", "session_id"]).execute();
  const names = new Map(all.map((each) => [each.id, Number(each.session_id.slice(-12))]));
  return rows.map((each) => (each?.parent_id == null ? undefined : names.get(each.parent_id)));
}

describe("who spawned whom", () => {
  it("is kept whatever the order of the rows, across agents and at any depth", async () => {
    const root = await stateDirectory({
      [store]: {
        "agent:main:subagent:grandchild": row(id(3), { spawnedBy: "agent:kid:subagent:child", spawnDepth: 2 }),
        "agent:main:main": row(id(1)),
      },
      "agents/kid/sessions/sessions.json": {
        "agent:kid:subagent:child": row(id(2), { spawnedBy: "agent:MAIN:main", spawnDepth: 1 }),
      },
    });
    const report = await runImport(app, root);
    expect(report.items.filter((item) => item.reason !== "transcript_missing")).toEqual([]);
    expect(await parentsOf(1, 2, 3)).toEqual([undefined, 1, 2]);
    const [top, child, grandchild] = await Promise.all([1, 2, 3].map((n) => sessionRow(app, id(n))));
    expect(grandchild?.path.map(BigInt)).toEqual([top!.id, child!.id, grandchild!.id]);
    expect(grandchild?.root_id).toBe(top!.id);
  });

  it("comes from the spawn registry where a row does not say", async () => {
    const root = await stateDirectory({
      [store]: { "agent:main:subagent:kid": row(id(2), { spawnDepth: 1 }), "agent:main:main": row(id(1)) },
      "subagents/runs.json": {
        version: 2,
        runs: { r: { childSessionKey: "agent:main:subagent:kid", requesterSessionKey: "main" } },
      },
    });
    await runImport(app, root);
    expect(await parentsOf(2)).toEqual([1]);
  });

  it("is the session that is here already when the directory does not hold it", async () => {
    const first = await stateDirectory({ [store]: { "agent:main:main": row(id(1)) } });
    const second = await stateDirectory({ [store]: { "agent:main:subagent:kid": row(id(2), { spawnedBy: "main" }) } });
    await runImport(app, first);
    const report = await runImport(app, second);
    expect(reasons(report)).toEqual(["transcript_missing"]);
    expect(await parentsOf(2)).toEqual([1]);
  });

  it("that is nowhere makes a root, reported", async () => {
    const root = await stateDirectory({
      [store]: {
        "agent:main:subagent:a": row(id(1), { spawnedBy: "agent:main:gone" }),
        "agent:main:subagent:b": row(id(2), { spawnedBy: "agent:::" }),
        "agent:main:subagent:c": row(id(3), { spawnDepth: 1 }),
      },
    });
    const report = await runImport(app, root);
    const missing = report.items.filter((item) => item.reason === "parent_missing");
    expect(missing.map((item) => item.key)).toEqual([1, 2, 3].map((n) => `agent:main:subagent:${" abc"[n]}`));
    expect(report.complete).toBe(true);
    const kid = (await sessionRow(app, id(1)))!;
    expect(kid.root_id).toBe(kid.id);
  });

  it("in a circle is broken up once", async () => {
    const root = await stateDirectory({
      [store]: {
        "agent:main:a": row(id(1), { spawnedBy: "agent:main:c" }),
        "agent:main:b": row(id(2), { spawnedBy: "agent:main:a" }),
        "agent:main:c": row(id(3), { spawnedBy: "agent:main:b" }),
        "agent:main:d": row(id(4), { spawnedBy: "agent:main:d" }),
      },
    });
    const report = await runImport(app, root);
    expect(report.items.filter((item) => item.reason === "parent_cycle")).toHaveLength(2);
    expect(report.sessions.imported).toBe(4);
    const parents = await parentsOf(1, 2, 3, 4);
    expect(parents.filter((parent) => parent === undefined)).toHaveLength(2);
    expect(parents[3]).toBeUndefined();
  });
});

describe("keys and ids that occur more than once", () => {
  it("let the newest session have the key and keep the others readable by id", async () => {
    const root = await stateDirectory({
      [store]: {
        "cron:job": row(id(1), { updatedAt: 2000 }),
        "agent:main:cron:job": row(id(2), { updatedAt: 3000 }),
        "agent:main:cron:job:run:r1": row(id(3), { updatedAt: 9000 }),
        "agent:main:cron:job:run:r2": row(id(2), { updatedAt: 3000 }),
      },
      [`agents/main/sessions/${id(3)}.jsonl`]: transcript(id(3), ["an earlier run"]),
    });
    const report = await runImport(app, root);
    expect(report.sessions).toMatchObject({ found: 4, imported: 3, skipped: 1, failed: 0 });
    expect(report.complete).toBe(true);
    const noted = report.items.filter((item) => item.reason !== "transcript_missing");
    expect(noted.map(({ reason, key }) => [reason, key])).toEqual([
      ["cron_run_twin", "agent:main:cron:job:run:r2"],
      ["earlier_session", "cron:job"],
      ["earlier_session", "agent:main:cron:job:run:r1"],
    ]);
    for (const [n, state] of [
      [1, 3],
      [2, 1],
      [3, 3],
    ] as const) {
      expect(await sessionRow(app, id(n))).toMatchObject({ state, session_key: "agent:main:cron:job" });
    }
    expect(await texts(app, id(3))).toEqual(["an earlier run"]);
  });

  it("share one address and one place in the spawn tree, whichever came first, until it is deleted", async () => {
    const main = row(id(9));
    const twin = (n: number) => row(id(n), { updatedAt: n, spawnedBy: "agent:main:main" });
    const kid = row(id(8), { spawnedBy: "agent:main:cron:job" });
    const states = [
      { "agent:main:main": main, "agent:main:cron:job:run:r1": twin(1) },
      { "agent:main:main": main, "agent:main:cron:job": row(id(2), { updatedAt: 2 }), "agent:main:subagent:kid": kid },
      { "agent:main:main": main, "agent:main:cron:job": twin(3) },
      { "agent:main:cron:job": twin(4), "cron:job": twin(3) },
    ];
    for (const rows of states) await runImport(app, await stateDirectory({ [store]: rows }));
    const [first, ...others] = await Promise.all([1, 2, 3, 4].map((n) => sessionRow(app, id(n))));
    const { address_id, root_id, path, parent_id } = first!;
    expect(address_id).toBe(first!.id);
    for (const other of others) expect(other).toMatchObject({ address_id, root_id, path, parent_id });
    expect(others.map((other) => other?.state)).toEqual([3, 3, 1]);
    expect((await sessionRow(app, id(8)))?.path.map(BigInt).slice(0, -1)).toEqual(path.map(BigInt));

    await inTransaction(app.db, (tx) => deleteSession(tx, others[2]!.id));
    await runImport(app, await stateDirectory({ [store]: { "agent:main:cron:job": twin(5) } }));
    const fresh = (await sessionRow(app, id(5)))!;
    expect(fresh).toMatchObject({ state: 1, address_id: fresh.id });
  });

  it("report a second address of one session as lost", async () => {
    const root = await stateDirectory({
      [store]: { "agent:main:a": row(id(1), { updatedAt: 1 }), "agent:main:b": row(id(1), { updatedAt: 2 }) },
    });
    const report = await runImport(app, root);
    expect(report.items[0]).toMatchObject({
      reason: "duplicate_session_id",
      key: "agent:main:a",
      detail: "it is the same session as agent:main:b",
      lost: true,
    });
    expect(report.sessions).toMatchObject({ found: 2, imported: 1, failed: 1 });
  });

  it("replace a session id that is no UUID by the same one every time", async () => {
    const root = await stateDirectory({
      [store]: { "agent:main:a": row("sess-1") },
      "agents/main/sessions/sess-1.jsonl": transcript("sess-1", ["hello"]),
    });
    expect(reasons(await runImport(app, root))).toEqual(["session_id_replaced"]);
    expect((await runImport(app, root)).sessions).toMatchObject({ unchanged: 1 });
    const { session_id } = await app.db.selectFrom("sessions").select("session_id").executeTakeFirstOrThrow();
    expect(await texts(app, session_id)).toEqual(["hello"]);
  });

  it("follow the source's main key", async () => {
    const root = await stateDirectory({
      "openclaw.json": "{ session: { mainKey: 'Work' } /* JSON5 */ }",
      [store]: { "agent:main:main": row(id(1)), "agent:main:other": row(id(2)) },
    });
    const report = await runImport(app, root);
    expect(report.mainKey).toBe("work");
    expect(await sessionRow(app, id(1))).toMatchObject({ session_key: "agent:main:work", kind: 1 });
  });
});
