import { expect, test } from "vitest";
import { RunState } from "../../src/client/index.ts";
import type { EventFact, Facts, MessageFact, RunFact } from "./facts.ts";
import { checkPromises } from "./promises.ts";
import { announced, answerOf, fileName, fileOf, sha256, spawned, spawnRequestId, toText, toWork } from "./work.ts";

/*
 * The checks of the chaos test, on a small history in which every promise is kept: two runs of one session, the first of
 * which was taken back from a late host once. Each test breaks one thing and names the promise that must notice.
 */

const texts = ["first", "second"].map((name) => toText({ name, act: "stream", ms: 1 }));
const answers = texts.map(answerOf);

function run(place: number, fields: Partial<RunFact> = {}): RunFact {
  return {
    id: place + 1,
    runId: `run ${place}`,
    session: "1",
    state: "completed",
    attempt: 1,
    leased: false,
    reply: answers[place]!,
    replyMessageId: `answer ${place}`,
    inputMessageId: `input ${place}`,
    lastEventSeq: 4,
    sourceSession: null,
    sourceTool: null,
    step: null,
    ...fields,
  };
}

function message(seq: number, place: number, role: "user" | "assistant"): MessageFact {
  const text = (role === "user" ? texts : answers)[place]!;
  const messageId = `${role === "user" ? "input" : "answer"} ${place}`;
  return { session: "1", seq, messageId, role, run: place + 1, text };
}

function changes(...states: string[]): EventFact["body"][] {
  return states.map((state) => ({ type: "state_change", state }));
}

function events(firstTransaction: number, attempts: readonly number[], bodies: EventFact["body"][]): EventFact[] {
  return bodies.map((body, place) => ({
    seq: place + 1,
    attempt: attempts[place]!,
    transaction: firstTransaction + place,
    body,
  }));
}

function story(): { -readonly [K in keyof Facts]: Facts[K] } {
  const runs = [run(0, { attempt: 2, lastEventSeq: 6 }), run(1)];
  const delta = (text: string) => ({ type: "text_delta", text });
  const taken = [...changes("ready", "running", "ready", "running"), delta(answers[0]!), ...changes("completed")];
  const plain = [...changes("waiting", "running"), delta(answers[1]!), ...changes("completed")];
  const messages = [
    message(1, 0, "user"),
    message(2, 1, "user"),
    message(3, 0, "assistant"),
    message(4, 1, "assistant"),
  ];
  const shown = {
    runs: runs.map(({ runId, reply }) => ({ runId, reply, state: RunState.COMPLETED })),
    messages: messages.map(({ messageId }) => ({ messageId })),
  } as unknown as Facts["shown"][number];
  return {
    callers: {
      sent: texts.map((text, place) => ({
        requestId: `request ${place}`,
        session: "agent:nova:main",
        text,
        sentAt: place * 10,
        acceptedAt: place * 10 + 5,
        runIds: new Set([`run ${place}`]),
      })),
      watched: [{ runId: "run 1", sequences: [1n, 2n, 3n, 4n], streams: 2, ended: true }],
      faults: [],
    },
    lateHost: { refused: ["late"], faults: [] },
    sessions: [{ id: "1", sessionId: "session 1", key: "agent:nova:main", lastSeq: 4 }],
    runs,
    messages,
    events: new Map([
      ["1", events(10, [0, 1, 1, 2, 2, 2], taken)],
      ["2", events(20, [0, 1, 1, 1], plain)],
    ]),
    exchanges: [
      { exchangeId: "e", kind: "send", closed: true, endReason: "reply_skip", steps: ["primary", "ping_pong/1"] },
      { exchangeId: "to itself", kind: "send", closed: true, endReason: "no_loop", steps: ["primary"] },
    ],
    chat: { asked: [], posted: [], lost: new Set(), faults: [] },
    spawns: [],
    files: [],
    deliveries: [],
    requests: runs.map(({ runId }, place) => ({
      caller: "operator",
      method: "SendMessage",
      requestId: `request ${place}`,
      runId,
    })),
    shown: [shown, shown],
  };
}

type History = ReturnType<typeof story>;

function brokenIn(change: (facts: History) => void): string[] {
  const facts = story();
  change(facts);
  return checkPromises(facts)
    .filter(({ broken }) => broken.length > 0)
    .map(({ promise }) => promise);
}

function withEvents(facts: History, runId: string, change: (events: EventFact[]) => EventFact[]): void {
  facts.events = new Map([...facts.events, [runId, change([...facts.events.get(runId)!])]]);
}

test("a history in which everything went well breaks no promise", () => {
  expect(brokenIn(() => {})).toEqual([]);
});

test.each<[string, RegExp, (facts: History) => void]>([
  ["a request without its run", /exactly one run/, (facts) => (facts.requests = facts.requests.slice(1))],
  ["two answers to one request", /repeated request id/, ({ callers }) => callers.sent[0]!.runIds.add("run 1")],
  [
    "a message stored twice",
    /one user message/,
    (facts) => (facts.messages = [...facts.messages, message(5, 0, "user")]),
  ],
  ["a hole in a transcript", /gap-free/, (facts) => (facts.sessions = [{ ...facts.sessions[0]!, lastSeq: 5 }])],
  [
    "messages in another order than they were accepted in",
    /in the order/,
    ({ callers }) => Object.assign(callers.sent[1]!, { sentAt: -9, acceptedAt: -5 }),
  ],
  ["a run that failed", /as its message asks/, (facts) => (facts.runs = [facts.runs[0]!, run(1, { state: "failed" })])],
  ["a waiting run alone", /without a head/, (facts) => (facts.runs = [facts.runs[0]!, run(1, { state: "waiting" })])],
  ["a lease left over", /no lease is left/, (facts) => (facts.runs = [facts.runs[0]!, run(1, { leased: true })])],
  ["another reply", /the agent's answer/, (facts) => (facts.runs = [facts.runs[0]!, run(1, { reply: "no" })])],
  ["two answers", /one final message/, (facts) => (facts.messages = [...facts.messages, message(5, 0, "assistant")])],
  [
    "an exchange that goes no further",
    /exchange between sessions/,
    (facts) => (facts.exchanges = [{ ...facts.exchanges[0]!, closed: false, endReason: null, steps: ["primary"] }]),
  ],
  [
    "an exchange without its turn",
    /exchange between sessions/,
    (facts) => (facts.exchanges = [{ ...facts.exchanges[0]!, steps: ["primary"] }]),
  ],
  ["a replica that hides a run", /both replicas/, (facts) => (facts.shown = [{ runs: [], messages: [] }])],
  ["a missing event", /without gap/, (facts) => withEvents(facts, "2", (all) => all.toSpliced(1, 1))],
  [
    "a write between two leases",
    /only while they hold it/,
    (facts) => withEvents(facts, "1", (all) => all.with(3, { ...all[3]!, body: { type: "progress", note: "x" } })),
  ],
  [
    "an event of the attempt before",
    /only while they hold it/,
    (facts) => withEvents(facts, "1", (all) => all.with(4, { ...all[4]!, attempt: 1 })),
  ],
  [
    "a stream with a piece missing",
    /is its answer, whole/,
    (facts) => withEvents(facts, "2", (all) => all.with(2, { ...all[2]!, body: { type: "text_delta", text: "sec" } })),
  ],
  [
    "a refused write that is there",
    /is nowhere/,
    (facts) => withEvents(facts, "2", (all) => all.with(2, { ...all[2]!, body: { type: "progress", note: "late" } })),
  ],
  [
    "two runs of a session at once",
    /one after the other/,
    (facts) => withEvents(facts, "2", (all) => all.map((event) => ({ ...event, transaction: event.transaction - 8 }))),
  ],
  ["an event seen twice", /every watcher/, ({ callers }) => callers.watched[0]!.sequences.push(4n)],
  ["an answer that must not be", /must not be answered/, ({ callers }) => callers.faults.push("INTERNAL")],
])("%s is noticed", (_, promise, change) => {
  expect(brokenIn(change)).toContainEqual(expect.stringMatching(promise));
});

const spawning = toWork(toText({ name: "spawner", act: "spawn", ms: 1, child: "fail" }));
const task = spawned(spawning);

/** A run of session 1 spawned the child 2, whose task failed; the report woke session 1. */
function family() {
  const spawner = run(10, { inputMessageId: "input 10" });
  const failed = run(11, {
    session: "2",
    state: "failed",
    step: "primary",
    sourceSession: "session 1",
    sourceTool: "sessions_spawn",
  });
  const announcing = run(12, { session: "2", step: "announce" });
  const woken = run(13, { sourceSession: "session 2", sourceTool: "sessions_spawn" });
  const inputs = [toText(spawning), task, "announce", `Status: failed\nResult: ${announced}\nStats: none`];
  return {
    sessions: ["1", "2"].map((id) => ({ id, sessionId: `session ${id}`, key: id, lastSeq: 0 })),
    runs: [spawner, failed, announcing, woken],
    messages: inputs.map((text, n) => ({
      session: "1",
      seq: n,
      messageId: `input ${10 + n}`,
      role: "user" as const,
      run: 11 + n,
      text,
    })),
    exchanges: [{ exchangeId: "s", kind: "spawn" as const, closed: true, endReason: "failed", steps: [] }],
    spawns: [
      {
        child: "2",
        requester: "1",
        requesterRunId: "run 10",
        firstRunId: "run 11",
        exchangeId: "s",
        active: false,
        settled: true,
      },
    ],
    files: [{ session: "2", name: fileName, sha256: sha256(fileOf(toWork(task))), intact: true }],
    requests: [{ caller: "1", method: "SpawnSession", requestId: spawnRequestId("run 10"), runId: "run 11" }],
  };
}

type Family = ReturnType<typeof family>;

function brokenInFamily(change: (facts: Family) => void): string[] {
  const facts = family();
  change(facts);
  const spawnPromise = /child|spawned|told once|file/;
  return checkPromises({ ...story(), ...facts })
    .filter(({ promise, broken }) => spawnPromise.test(promise) && broken.length > 0)
    .map(({ promise }) => promise);
}

test("a family in which everything went well breaks no promise about spawns", () => {
  expect(brokenInFamily(() => {})).toEqual([]);
});

test.each<[string, RegExp, (facts: Family) => void]>([
  ["a child that is not there", /spawned its child once/, (facts) => facts.spawns.pop()],
  ["a second child", /spawned its child once/, (facts) => facts.spawns.push({ ...facts.spawns[0]!, child: "3" })],
  ["a spawn that is not remembered", /spawned its child once/, (facts) => facts.requests.pop()],
  ["a file that is not there", /one file/, (facts) => facts.files.pop()],
  ["a file of others", /one file/, (facts) => Object.assign(facts.files[0]!, { sha256: "00" })],
  ["a broken file", /has its content/, (facts) => Object.assign(facts.files[0]!, { intact: false })],
  ["a child without an announce", /one announce/, (facts) => facts.runs.splice(2, 1)],
  ["a child that stays active", /no longer active/, (facts) => Object.assign(facts.spawns[0]!, { active: true })],
  ["an announce nobody settled", /no longer active/, (facts) => Object.assign(facts.spawns[0]!, { settled: false })],
  ["a report that is missing", /told once/, (facts) => facts.runs.pop()],
  ["a report made twice", /told once/, (facts) => facts.runs.push(facts.runs[3]!)],
  ["a status that is not true", /told once/, (facts) => Object.assign(facts.runs[1]!, { state: "completed" })],
])("%s is noticed", (_, promise, change) => {
  expect(brokenInFamily(change)).toContainEqual(expect.stringMatching(promise));
});

const question = toText({ name: "question", act: "answer", ms: 1 });

/** The family again, its requester in a chat: the report is in its transcript and in the chat, as is the answer to a person. */
function chatting() {
  const { runs, messages, ...rest } = family();
  const text = messages[3]!.text;
  const delivery = { session: "1", state: "delivered" as const };
  return {
    ...rest,
    runs: runs.slice(0, 3),
    messages: messages.with(3, { ...messages[3]!, run: 0 }),
    exchanges: [...rest.exchanges, { ...rest.exchanges[0]!, exchangeId: "p", kind: "message" as const }],
    deliveries: [
      { ...delivery, deliveryId: "d1", exchangeId: "p", kind: "reply" as const, text: answerOf(question) },
      { ...delivery, deliveryId: "d2", exchangeId: "s", kind: "announce" as const, text },
    ],
    requests: [...rest.requests, { caller: "chat", method: "ReceiveMessage", requestId: "m", runId: "run 10" }],
    chat: {
      asked: [{ providerMessageId: "m", text: question, runIds: new Set(["run 10"]) }],
      posted: [
        { deliveryId: "d1", text: answerOf(question) },
        { deliveryId: "d2", text },
      ],
      lost: new Set<string>(),
      faults: [],
    },
  };
}

type Chatting = ReturnType<typeof chatting>;

function brokenInChat(change: (facts: Chatting) => void): string[] {
  const facts = chatting();
  change(facts);
  return checkPromises({ ...story(), ...facts })
    .filter(({ promise, broken }) => /told once|chat|delivery/.test(promise) && broken.length > 0)
    .map(({ promise }) => promise);
}

test("a chat in which everything went well breaks no promise about chats", () => {
  expect(brokenInChat(() => {})).toEqual([]);
});

test.each<[string, RegExp, (facts: Chatting) => void]>([
  ["a report that is not in the transcript", /told once/, (facts) => facts.messages.pop()],
  ["a report put there twice", /told once/, (facts) => facts.messages.push(facts.messages[3]!)],
  ["a report that goes out twice", /told once/, (facts) => facts.deliveries.push(facts.deliveries[1]!)],
  ["a report of another session", /told once/, (facts) => Object.assign(facts.deliveries[1]!, { session: "2" })],
  ["a message accepted twice", /became one run/, ({ chat }) => chat.asked[0]!.runIds.add("run 11")],
  ["a message without an answer", /answered there/, (facts) => facts.deliveries.shift()],
  ["a text posted twice", /posted once/, ({ chat }) => chat.posted.push(chat.posted[0]!)],
  ["a text nobody posted", /posted once/, ({ chat }) => chat.posted.pop()],
  ["a text nobody sent", /posted once/, ({ chat }) => chat.posted.push({ deliveryId: "d3", text: "?" })],
  ["a delivery left open", /posted once/, (facts) => Object.assign(facts.deliveries[1]!, { state: "claimed" })],
])("%s is noticed", (_, promise, change) => {
  expect(brokenInChat(change)).toContainEqual(expect.stringMatching(promise));
});
