import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { parseSessionKey } from "../../src/domain/session-key.ts";
import type { ImportReport } from "../../src/import/report.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { captures, fixtureState, reasons, runImport, sessionRow, texts } from "./support.ts";

let app: TestApp;
let report: ImportReport;

beforeAll(async () => {
  app = await testApp();
  report = await runImport(app, fixtureState);
});

describe("a real state directory", () => {
  it("comes over whole: 77 sessions of 78 rows and 2,485 messages, nothing lost", async () => {
    expect(report.sessions).toEqual({ found: 78, imported: 77, unchanged: 0, updated: 0, skipped: 1, failed: 0 });
    expect(report.messages).toEqual({ imported: 2485, unchanged: 0 });
    expect(report.complete).toBe(true);
    expect(await counts(app)).toEqual({ sessions: 77, listed: 75, messages: 2485 });
  });

  it("reports what was left out and why", () => {
    expect(reasons(report)).toEqual(["cron_run_twin", "parent_missing", "transcript_archived", "transcript_missing"]);
    expect(report.items.filter((item) => item.reason === "transcript_missing")).toHaveLength(5);
    expect(report.items.filter((item) => item.reason === "parent_missing")).toHaveLength(3);
    expect(report.items.find((item) => item.reason === "cron_run_twin")).toEqual({
      reason: "cron_run_twin",
      file: "agents/main/sessions/sessions.json",
      key: "agent:main:cron:189fa4ba-4905-4846-a117-01e720bbdf97:run:6cf9840b-3aff-411d-ac11-de2d204b317f",
      detail: "it is the same session as agent:main:cron:189fa4ba-4905-4846-a117-01e720bbdf97",
      lost: false,
    });
    expect(report.fieldsNotKept).toEqual({ skillsSnapshot: 54, cacheRead: 51, cacheWrite: 51 });
  });

  it("keeps every key of the store, both spellings of cron, hook and node", async () => {
    const keys = JSON.parse(await readFile(join(captures, "434-store-keys.json"), "utf8")) as Record<string, string[]>;
    const rows = await app.db.selectFrom("sessions").select("session_key").execute();
    const stored = new Set(rows.map((row) => row.session_key));
    const missing = ["main", "worker"].flatMap((agent) =>
      keys[agent]!.filter((name) => {
        const key = parseSessionKey(name, { defaultAgentId: agent, mainKey: "main", scope: "per-sender" });
        return "problem" in key || !stored.has(key.key);
      }),
    );
    expect(missing).toEqual([expect.stringContaining(":run:")]);
    expect(stored).toContain("agent:main:cron:job-bare");
    expect(stored).toContain("agent:main:node-bare");
    expect(stored).toContain("agent:main:hook:22222222-2222-4222-8222-222222222222");
  });

  it("imports global and unknown as reserved", async () => {
    const rows = await app.db.selectFrom("sessions").select("session_key").where("reserved", "=", true).execute();
    expect(rows.map((row) => row.session_key).sort()).toEqual(["agent:main:global", "agent:main:unknown"]);
  });

  it("keeps a group's names, route and counters", async () => {
    expect(await sessionRow(app, "28a910f3-6c49-43ff-bb6d-c58947bc0cc4")).toMatchObject({
      session_key: "agent:main:discord:group:123",
      kind: 2,
      chat_type: 2,
      channel: "discord",
      display_name: "discord:dev-group",
      subject: "Dev group",
      last_channel: "discord",
      last_to: "channel:123",
      route_channel: "discord",
      route_to: "channel:123",
      route_account_id: "acc1",
      model: "instant",
      model_provider: "mock",
      context_tokens: 200000n,
      input_tokens: 7944n,
      output_tokens: 7n,
      total_tokens: 7944n,
      aborted_last_run: false,
      system_sent: null,
      updated_at: new Date(1796053669271),
      version: 1n,
    });
  });

  it("keeps levels, overrides and policies, and leaves absent what the source does not say (C89)", async () => {
    expect(await sessionRow(app, "5c00a9d2-35c2-4ac3-8cf6-d8bda5736267")).toMatchObject({
      label: "old-one",
      thinking_level: "low",
      verbose_level: "on",
      system_sent: true,
      aborted_last_run: true,
      total_tokens: 1234n,
      input_tokens: null,
      output_tokens: null,
      send_policy: null,
      route_channel: null,
    });
    expect(await sessionRow(app, "02caf59a-7e0f-4cb0-ab90-faed482e9591")).toMatchObject({ send_policy: 2 });
    const overridden = await app.db
      .selectFrom("sessions")
      .select("model_override")
      .where("model_override", "is not", null)
      .execute();
    expect(overridden).toEqual([{ model_override: "mock/alt" }, { model_override: "mock/alt" }]);
  });

  it("takes the beginning of a session from its transcript", async () => {
    const row = await sessionRow(app, "ab966d37-e421-4fa1-907b-b68ff2355662");
    expect(row?.created_at).toEqual(new Date("2026-11-30T15:44:10.930Z"));
  });

  it("keeps who spawned whom", async () => {
    const main = (await sessionRow(app, "f37bc1f3-0ac8-49d6-aa44-244d228629d6"))!;
    const children = await app.db.selectFrom("sessions").selectAll().where("parent_id", "=", main.id).execute();
    expect(children).toHaveLength(44);
    for (const child of children) {
      expect(child.root_id).toBe(main.id);
      expect(child.path.map(BigInt)).toEqual([main.id, child.id]);
    }
    const agents = new Set(children.map((child) => child.agent_id));
    expect([...agents].sort()).toEqual(["boxed", "ghost", "main", "worker"]);
  });
});

describe("its transcripts", () => {
  it("are kept byte for byte, in order", async () => {
    const stored = await storedRaw(app);
    let compared = 0;
    for (const { session_id, agent, raw } of stored) {
      const path = join(fixtureState, "agents", agent, "sessions", `${session_id}.jsonl`);
      expect(raw).toEqual(await messagesOfFile(path));
      compared += raw.length;
    }
    expect(compared).toBe(2485);
  });

  it("keep thinking with its signature, tool calls, results, images, usage and provenance", async () => {
    const rows = await app.db.selectFrom("messages").select(["role", "body"]).execute();
    const bodies = rows.map((row) => JSON.parse(row.body.toString("utf8")) as Record<string, unknown>);
    const parts = bodies.flatMap((body) => body["parts"] as { type: string }[]);
    const byType = Object.groupBy(parts, (part) => part.type);
    expect(Object.fromEntries(Object.entries(byType).map(([type, list]) => [type, list?.length]))).toEqual({
      text: 2505,
      image: 1,
      thinking: 2,
      tool_call: 16,
    });
    expect(byType["thinking"]?.[0]).toEqual({ type: "thinking", text: "thinking about it", signature: "sig" });
    expect(bodies.filter((body) => body["role"] === "tool_result")).toHaveLength(20);
    expect(bodies.filter((body) => body["usage"] !== undefined)).toHaveLength(1242);
    const provenances = bodies.flatMap((body) => (body["provenance"] === undefined ? [] : [body["provenance"]]));
    expect(provenances).toHaveLength(69);
    expect(provenances[0]).toMatchObject({ kind: "inter_session", sourceTool: expect.any(String) });
  });

  it("of 2,000 messages arrive in order", async () => {
    const found = await texts(app, "fba68b5d-c7fb-4289-a9e0-69a8d626f798");
    expect(found).toEqual(Array.from({ length: 2000 }, (_, n) => `#${n}`));
  });
});

describe("a second import", () => {
  it("changes nothing", async () => {
    const before = await checksum(app);
    app.clock.advance(3_600_000);
    const again = await runImport(app, fixtureState);
    expect(again.sessions).toEqual({ found: 78, imported: 0, unchanged: 77, updated: 0, skipped: 1, failed: 0 });
    expect(again.messages).toEqual({ imported: 0, unchanged: 2485 });
    expect(await checksum(app)).toBe(before);
  });
});

describe("a rehearsal", () => {
  it("reports the same and keeps nothing", async () => {
    const other = await testApp();
    const rehearsed = await runImport(other, fixtureState, { dryRun: true });
    expect(rehearsed).toEqual({ ...report, dryRun: true });
    expect(await counts(other)).toEqual({ sessions: 0, listed: 0, messages: 0 });
  });
});

async function counts(of: TestApp) {
  const rows = await of.db.selectFrom("sessions").select(["reserved"]).execute();
  const { count } = await of.db
    .selectFrom("messages")
    .select((eb) => eb.fn.countAll<bigint>().as("count"))
    .executeTakeFirstOrThrow();
  return { sessions: rows.length, listed: rows.filter((row) => !row.reserved).length, messages: Number(count) };
}

/** Over every stored byte, in a fixed order. */
async function checksum(of: TestApp): Promise<string> {
  const hash = createHash("sha256");
  const json = (value: unknown) =>
    JSON.stringify(value, (_, inner) => (typeof inner === "bigint" ? inner.toString() : inner));
  for (const table of ["sessions", "messages", "session_imports"] as const) {
    const order = table === "messages" ? ["session", "seq"] : table === "sessions" ? ["id"] : ["session"];
    let query = of.db.selectFrom(table).selectAll();
    for (const column of order) query = query.orderBy(column as never);
    hash.update(json(await query.execute()));
  }
  return hash.digest("hex");
}

async function storedRaw(of: TestApp) {
  const rows = await of.db
    .selectFrom("messages")
    .innerJoin("sessions", "sessions.id", "messages.session")
    .select(["sessions.session_id", "sessions.agent_id", "messages.raw"])
    .orderBy("messages.session")
    .orderBy("messages.seq")
    .execute();
  const bySession = Map.groupBy(rows, (row) => row.session_id);
  return [...bySession].map(([session_id, list]) => ({
    session_id,
    agent: list[0]!.agent_id,
    raw: list.map((row) => row.raw!.toString("utf8")),
  }));
}

/** An independent reading: what stands behind the first `"message":` of a line, up to the line's last brace. */
async function messagesOfFile(path: string): Promise<string[]> {
  const lines = (await readFile(path, "utf8")).split("\n");
  return lines
    .filter((line) => line.startsWith('{"type":"message"'))
    .map((line) => line.slice(line.indexOf('"message":') + '"message":'.length, -1));
}
