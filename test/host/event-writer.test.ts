import { Code, ConnectError } from "@connectrpc/connect";
import fc from "fast-check";
import { expect, test } from "vitest";
import { TurnEnded } from "../../src/host/errors.ts";
import { EventWriter, type HostEventInit } from "../../src/host/event-writer.ts";

interface Batch {
  readonly first: number;
  readonly events: readonly HostEventInit[];
}

/** A writer whose batches are kept until the test lets them go. */
function heldBack(): { writer: EventWriter; batches: Batch[]; letGo(): void } {
  const batches: Batch[] = [];
  let waiting: (() => void)[] = [];
  const writer = new EventWriter((first, events) => {
    batches.push({ first, events });
    return new Promise((resolve) => waiting.push(resolve));
  });
  const letGo = () => {
    const go = waiting;
    waiting = [];
    for (const resolve of go) resolve();
  };
  return { writer, batches, letGo };
}

function collecting(): { writer: EventWriter; batches: Batch[] } {
  const batches: Batch[] = [];
  const writer = new EventWriter(async (first, events) => {
    batches.push({ first, events });
  });
  return { writer, batches };
}

function textOf(events: readonly HostEventInit[]): string {
  return events.map(({ event }) => (event?.case === "textDelta" ? event.value.text : "")).join("");
}

const note: HostEventInit = { event: { case: "progress", value: { note: "n" } } };

test("adjacent texts of a message travel as one event; another event or message keeps its place between them", async () => {
  const { writer, batches } = collecting();
  void writer.writeText("m1", 0, "one ");
  void writer.writeText("m1", 4, "two");
  void writer.write(note);
  void writer.writeText("m1", 7, "three");
  void writer.writeText("m2", 0, "other");
  await writer.flush();
  const cases = batches[0]?.events.map(({ event }) => (event?.case === "textDelta" ? event.value : event?.case));
  expect(batches).toHaveLength(1);
  expect(cases).toEqual([
    { messageId: "m1", offset: 0n, text: "one two" },
    "progress",
    { messageId: "m1", offset: 7n, text: "three" },
    { messageId: "m2", offset: 0n, text: "other" },
  ]);
  expect(writer.acceptedSequence).toBe(4);
});

test("one batch is on its way at a time, and numbers go on without a gap", async () => {
  const { writer, batches, letGo } = heldBack();
  void writer.write(note);
  const flushed = writer.flush();
  await expect.poll(() => batches.length).toBe(1);
  void writer.write(note);
  void writer.write(note);
  expect(batches).toHaveLength(1);
  letGo();
  await expect.poll(() => batches.length).toBe(2);
  expect(batches[1]).toMatchObject({ first: 2, events: [note, note] });
  letGo();
  await flushed;
  expect(writer.acceptedSequence).toBe(3);
});

test("a slow service is felt by whoever awaits, and by nobody else", async () => {
  const { writer, letGo } = heldBack();
  const chunk = "x".repeat(16 * 1024);
  let offset = 0;
  let roomy = 0;
  const fill = async () => {
    for (; offset < 40 * chunk.length; offset += chunk.length) {
      await writer.writeText("m", offset, chunk);
      roomy++;
    }
  };
  const filled = fill();
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(roomy).toBeGreaterThan(10);
  expect(roomy).toBeLessThan(30);
  const pump = setInterval(letGo, 1);
  await filled;
  await writer.flush();
  clearInterval(pump);
  expect(offset).toBe(40 * chunk.length);
});

test("a failure reaches the writer that waits, the flush, and later writers; what was not sent is dropped", async () => {
  const refused = new Error("refused");
  const writer = new EventWriter(() => Promise.reject(refused));
  await writer.write(note);
  await expect(writer.flush()).rejects.toBe(refused);
  await expect(writer.write(note)).rejects.toBe(refused);
  expect(writer.acceptedSequence).toBe(0);
});

test("any text arrives whole, in order, in deltas of whole characters", async () => {
  const texts = fc.array(
    fc.oneof(
      fc.string({ unit: "grapheme" }),
      fc.nat(40_000).map((n) => "😀".repeat(n)),
    ),
    { maxLength: 6 },
  );
  await fc.assert(
    fc.asyncProperty(texts, async (pieces) => {
      const { writer, batches } = collecting();
      let offset = 0;
      for (const piece of pieces) {
        await writer.writeText("m", offset, piece);
        offset += piece.length;
      }
      await writer.flush();
      let next = 1;
      for (const { first, events } of batches) {
        expect(first).toBe(next);
        next += events.length;
        for (const event of events) expect(textOf([event]).isWellFormed()).toBe(true);
      }
      expect(batches.map(({ events }) => textOf(events)).join("")).toBe(pieces.join(""));
    }),
    { numRuns: 30, seed: 7 },
  );
});

const file: HostEventInit = { event: { case: "outputAttachment", value: { name: "a.txt" } } };

test("an event written alone has a batch of its own, after what was written before", async () => {
  const { writer, batches } = collecting();
  void writer.write(note);
  const stored = writer.writeAlone(file);
  void writer.write(note);
  void writer.write(note);
  await stored;
  await writer.flush();
  expect(batches.map(({ first, events }) => [first, events.length])).toEqual([
    [1, 1],
    [2, 1],
    [3, 2],
  ]);
});

test("the refusal of an event written alone is its writer's: it takes no number, and others go on", async () => {
  const batches: Batch[] = [];
  const writer = new EventWriter(async (first, events) => {
    batches.push({ first, events });
    if (events[0]?.event?.case === "outputAttachment") throw new ConnectError("its name", Code.InvalidArgument);
  });
  void writer.write(note);
  const refused = writer.writeAlone(file);
  void writer.write(note);
  await expect(refused).rejects.toThrow("its name");
  await writer.flush();
  expect(batches.map(({ first }) => first)).toEqual([1, 2, 2]);
  expect(writer.acceptedSequence).toBe(2);
});

test("a lease that is lost rejects events written alone, sent or not", async () => {
  const lost = new TurnEnded("lease_lost", "lost");
  const writer = new EventWriter(async () => {
    throw lost;
  });
  const writes = [writer.writeAlone(file), writer.writeAlone(file)];
  expect(await Promise.allSettled(writes)).toEqual(writes.map(() => ({ status: "rejected", reason: lost })));
  await expect(writer.flush()).rejects.toBe(lost);
});
