import { randomUUID } from "node:crypto";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { archiveSession } from "../../src/app/archive-session.ts";
import { deleteSession } from "../../src/app/delete-session.ts";
import { resetSession } from "../../src/app/reset-session.ts";
import { updateSession } from "../../src/app/update-session.ts";
import type { Session } from "../../src/domain/session.ts";
import { findSessionById } from "../../src/store/sessions.ts";
import { type TestApp, testApp } from "../support/app.ts";
import { TestConnector } from "../support/deliveries.ts";
import { endOpenRuns } from "../support/exchange-pair.ts";
import { addRun, operator, textsOf } from "../support/seed.ts";
import { actingAs } from "../support/session-tools.ts";
import type { Spawned } from "../support/spawn.ts";
import { announceConfig, announcesOf, chat, reportsOf, SpawnStory } from "../support/spawn-report.ts";

let app: TestApp;
let story: SpawnStory;
beforeAll(async () => {
  app = await testApp({ config: announceConfig });
});
beforeEach(async () => {
  await endOpenRuns(app);
  story = await SpawnStory.inChat(app);
});

const named = { principal: operator } as const;
const naming = (session: Session) => ({ ...named, requestId: randomUUID(), session: session.sessionId });

describe("where it goes", () => {
  test("C85: the route of the spawn, whole, whatever the requester's is by now", async () => {
    await story.spawn();
    await app.db
      .updateTable("sessions")
      .set({ route_channel: "whatsapp", route_to: "w1", route_account_id: null, route_thread_id: null })
      .where("id", "=", story.requester.id)
      .execute();
    await story.say("R");
    await story.say("done");
    expect(await announcesOf(app, story.requester)).toMatchObject([
      { channel: chat.channel, to_address: "t1", account_id: "b2", thread_id: "7" },
    ]);
  });

  test("S6.9: the thread of the child, while it is bound", async () => {
    for (const [state, thread] of [
      [1, "7"],
      [2, "99"],
      [3, "7"],
      [4, "7"],
    ] as const) {
      const each = await SpawnStory.inChat(app);
      const { child } = await each.spawn();
      await bindThread(each.requester, child, state);
      await each.say("R");
      await each.say("done");
      expect(await announcesOf(app, each.requester)).toMatchObject([{ to_address: "t1", thread_id: thread }]);
      const [text] = await reportsOf(app, each.requester);
      expect(text?.includes("Notes: The thread could not be opened: forbidden.")).toBe(state === 3);
    }
  });

  /** A binding in this state, as the table keeps it. */
  async function bindThread(requester: Session, child: Session, state: number): Promise<void> {
    const now = app.clock.now();
    const route = { channel: "telegram", account_id: "b2", chat_id: "t1" };
    const bound = state === 1 || state === 3 ? null : now;
    const times = { requested_at: now, bound_at: bound, active_at: bound, ended_at: state > 2 ? now : null };
    await app.db
      .insertInto("thread_bindings")
      .values({
        child: child.id,
        requester: requester.id,
        state,
        ...route,
        ...times,
        thread_id: bound && "99",
        detail: state === 3 ? "forbidden" : null,
      })
      .execute();
  }

  test("S7.3: the requester's policy decides about its chat; its transcript is told in any case", async () => {
    const each = await SpawnStory.inChat(app, { deliveryRoute: { channel: "signal", to: "s1" } });
    const spawned = await each.spawn();
    await each.say("R");
    await updateSession(app, { ...naming(each.requester), change: { sendPolicy: "deny" } });
    await each.say("done");
    expect(await (await new TestConnector(app).register("signal")).claim()).toEqual([]);
    expect(await story.stateOf(spawned)).toMatchObject({ announceOutcome: "denied" });
    expect(await each.report()).toContain("Result: done");
  });

  test("C84: a grandchild's result goes to its own parent, which is woken", async () => {
    const { child } = await story.spawn({ task: "delegate" });
    await story.say("I delegated it.");
    const nested = await new SpawnStory(app, child).spawn({ task: "the work" });
    await story.say("ANNOUNCE_SKIP");
    await story.say("the work is done");
    await story.say("done");
    expect(await reportsOf(app, story.requester)).toEqual([]);
    expect(await reportsOf(app, child)).toHaveLength(1);
    const woken = await story.claim();
    expect(woken.run).toMatchObject({ sessionKey: child.sessionKey });
    expect(woken.run.injectedContext).toContain(nested.child.sessionKey);
    await story.host.complete(woken, "thanks");
  });

  test("C84: the requester's turn ended long before", async () => {
    const turn = await addRun(app, story.requester);
    const held = await story.claim();
    const spawned = await story.spawn({ principal: actingAs(story.requester, turn) });
    await story.host.complete(held, "I asked a sub-agent.");
    await story.say("R");
    await story.say("done");
    expect(await story.report()).toContain("Result: done");
    expect((await story.stateOf(spawned)).announceOutcome).toBe("pending");
  });
});

describe("C92: a requester without a channel", () => {
  beforeEach(async () => {
    story = await SpawnStory.withoutChat(app);
  });

  async function finish(): Promise<Spawned> {
    const spawned = await story.spawn();
    await story.say("R");
    await story.say("done");
    return spawned;
  }

  test("is woken by a run that brings the report", async () => {
    const spawned = await finish();
    const woken = await story.claim();
    expect(woken.run).toMatchObject({ sessionKey: story.requester.sessionKey, provenance: { kind: "inter_session" } });
    expect(await story.report()).toContain("Result: done");
    expect(await story.stateOf(spawned)).toMatchObject({ phase: "closed", announceOutcome: "no_route" });
    expect(await story.spawnOf(spawned)).toMatchObject({ settledAt: app.clock.now() });
    expect(await announcesOf(app, story.requester)).toEqual([]);
  });

  test("may spawn again, as often as it is woken", async () => {
    await finish();
    for (let n = 0; n < 15; n++) {
      const woken = await story.claim();
      expect(woken.run.provenance.chain).toEqual([story.requester.sessionKey]);
      await story.spawn({ principal: actingAs(story.requester, woken.run) });
      await story.host.complete(woken, "again");
      await story.say("R");
      await story.say("done");
    }
  });

  test("is brought back from the archive", async () => {
    await story.spawn();
    await archiveSession(app, naming(story.requester));
    await story.say("R");
    await story.say("done");
    expect(await findSessionById(app.db, story.requester.id)).toMatchObject({ state: "active" });
    expect((await story.claim()).run.sessionKey).toBe(story.requester.sessionKey);
  });

  test("is busy: the report waits its turn, also behind a full queue", async () => {
    const narrow = { ...app, config: { ...app.config, runs: { ...app.config.runs, maxQueuedPerSession: 1 } } };
    await addRun(app, story.requester);
    const busy = await story.claim();
    await story.spawn();
    await story.on(narrow).say("R");
    await story.on(narrow).say("done");
    expect(await story.host.claim()).toEqual([]);
    await story.host.complete(busy, "finished");
    expect((await story.claim()).run.injectedContext).toContain("sub-agent that you spawned has finished");
  });
});

describe("a requester that left", () => {
  test("reset: its old transcript keeps the report, its chat is told, the new session is not woken", async () => {
    const spawned = await story.spawn();
    await resetSession(app, naming(story.requester));
    await story.say("R");
    await story.say("done");
    const text = await story.report();
    expect(await announcesOf(app, story.requester)).toMatchObject([{ text }]);
    expect(await story.stateOf(spawned)).toMatchObject({ endReason: "requester_gone", announceOutcome: "pending" });
    const mute = await SpawnStory.withoutChat(app);
    await mute.spawn();
    await resetSession(app, naming(mute.requester));
    await mute.say("R");
    await mute.say("done");
    expect(await mute.report()).toContain("Result: done");
    expect(await story.host.claim()).toEqual([]);
  });

  test("deleted: nobody is told, and that is certain", async () => {
    const spawned = await story.spawn();
    await story.say("R");
    const announce = await story.claim();
    await app.db.updateTable("sessions").set({ state: 4 }).where("id", "=", story.requester.id).execute();
    await story.host.complete(announce, "done");
    expect(await textsOf(app, story.requester)).toEqual([]);
    expect(await announcesOf(app, story.requester)).toEqual([]);
    expect(await story.stateOf(spawned)).toMatchObject({ phase: "closed", announceOutcome: "denied" });
    expect(await story.spawnOf(spawned)).toMatchObject({ settledAt: app.clock.now() });
  });

  test("C117: the child is reset: its task goes on in the old session, and is announced there", async () => {
    const spawned = await story.spawn();
    const held = await story.claim();
    await resetSession(app, naming(spawned.child));
    await story.host.complete(held, "R");
    const announce = await story.say("done");
    expect(announce.run).toMatchObject({ sessionId: spawned.child.sessionId, exchange: { step: "announce" } });
    expect(await story.report()).toContain("Result: done");
  });

  test("the child is deleted while it announces: nothing is left to tell", async () => {
    const spawned = await story.spawn();
    await story.say("R");
    await deleteSession(app, naming(spawned.child));
    expect(await story.stateOf(spawned)).toMatchObject({ phase: "closed", announceOutcome: "failed" });
    expect(await textsOf(app, story.requester)).toEqual([]);
  });
});
