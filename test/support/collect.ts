/** Everything an async iterable yields, each item converted. */
export async function collect<T, U>(items: AsyncIterable<T>, convert: (item: T) => U): Promise<U[]> {
  const collected: U[] = [];
  for await (const item of items) collected.push(convert(item));
  return collected;
}
