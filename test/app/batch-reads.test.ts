import { expect, test } from "vitest";
import { batchReads } from "../../src/app/batch-reads.ts";

/** A read under the test's control: each call waits until it is let go. */
function slowReads(limit: number) {
  const reads: { questions: readonly number[]; finish: (error?: Error) => void }[] = [];
  const ask = batchReads(limit, String, async (questions: readonly number[]) => {
    await new Promise<void>((resolve, reject) => {
      reads.push({ questions, finish: (error) => (error ? reject(error) : resolve()) });
    });
    return questions.map((question) => question * 10);
  });
  const untilReads = async (count: number) => {
    while (reads.length < count) await new Promise(setImmediate);
  };
  return { ask, reads, untilReads };
}

test("questions of one moment are one read, each gets its own answer", async () => {
  const { ask, reads, untilReads } = slowReads(10);
  const answers = Promise.all([ask(1), ask(2), ask(1)]);
  await untilReads(1);
  expect(reads[0]?.questions).toEqual([1, 2]);
  reads[0]?.finish();
  expect(await answers).toEqual([10, 20, 10]);
});

test("a question asked during a read waits for the next one: its answer is never older than the question", async () => {
  const { ask, reads, untilReads } = slowReads(2);
  const first = ask(1);
  await untilReads(1);
  const later = [ask(1), ask(2), ask(3)];
  await new Promise(setImmediate);
  expect(reads).toHaveLength(1);
  reads[0]?.finish();
  expect(await first).toBe(10);
  await untilReads(2);
  expect(reads[1]?.questions).toEqual([1, 2]);
  reads[1]?.finish();
  await untilReads(3);
  expect(reads[2]?.questions).toEqual([3]);
  reads[2]?.finish();
  expect(await Promise.all(later)).toEqual([10, 20, 30]);
});

test("a read that fails fails its own questions only", async () => {
  const { ask, reads, untilReads } = slowReads(10);
  const first = ask(1);
  await untilReads(1);
  const second = ask(2);
  reads[0]?.finish(new Error("away"));
  await expect(first).rejects.toThrow("away");
  await untilReads(2);
  reads[1]?.finish();
  expect(await second).toBe(20);
});
