/**
 * One read for everybody who asks at about the same time: questions gather while a read is under way and leave together
 * with the next one. One read at a time, at most `limit` questions in each; equal questions (by `keyOf`) share an answer.
 */
export function batchReads<Q, A>(
  limit: number,
  keyOf: (question: Q) => string,
  read: (questions: readonly Q[]) => Promise<readonly A[]>,
): (question: Q) => Promise<A> {
  const waiting = new Map<string, Pending<Q, A>>();
  let reading = false;

  async function readAll(): Promise<void> {
    while (waiting.size > 0) {
      const batch = [...waiting.values()].slice(0, limit);
      for (const { question } of batch) waiting.delete(keyOf(question));
      try {
        const answers = await read(batch.map(({ question }) => question));
        batch.forEach(({ resolve }, index) => {
          resolve(answers[index] as A);
        });
      } catch (error) {
        for (const { reject } of batch) reject(error);
      }
    }
    reading = false;
  }

  return (question) => {
    const key = keyOf(question);
    let pending = waiting.get(key);
    if (!pending) {
      pending = { question, ...Promise.withResolvers<A>() };
      waiting.set(key, pending);
      if (!reading) {
        reading = true;
        setImmediate(readAll);
      }
    }
    return pending.promise;
  };
}

interface Pending<Q, A> extends PromiseWithResolvers<A> {
  readonly question: Q;
}
