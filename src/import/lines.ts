/** A line of a file without its line end. */
export interface Line {
  /** From 1. */
  readonly number: number;
  readonly bytes: Buffer;
  /** False for a last line the file ends in without a line end: its writer may not have finished it. */
  readonly ended: boolean;
  /** Longer than the limit: `bytes` is empty and what it held was passed over. */
  readonly tooLong?: boolean;
}

/** Lines above this many bytes are passed over, so that a broken file cannot fill the memory. */
const defaultLimit = 64 * 1024 * 1024;

/** Cuts a byte stream into lines; holds one line and one chunk at a time. */
export async function* readLines(chunks: AsyncIterable<Buffer>, limit = defaultLimit): AsyncGenerator<Line> {
  let held: Buffer[] = [];
  let length = 0;
  let number = 0;
  const cut = (ended: boolean): Line => {
    number++;
    const line: Line =
      length > limit
        ? { number, bytes: Buffer.alloc(0), ended, tooLong: true }
        : { number, bytes: trimLine(Buffer.concat(held), number), ended };
    held = [];
    length = 0;
    return line;
  };
  const hold = (bytes: Buffer): void => {
    length += bytes.length;
    if (length > limit) held = [];
    else if (bytes.length > 0) held.push(bytes);
  };
  for await (const chunk of chunks) {
    let from = 0;
    for (let end = chunk.indexOf(0x0a); end >= 0; end = chunk.indexOf(0x0a, from)) {
      hold(chunk.subarray(from, end));
      from = end + 1;
      yield cut(true);
    }
    hold(chunk.subarray(from));
  }
  if (length > 0) yield cut(false);
}

/** Without the return of a CRLF line end, and without the byte order mark some editors put first. */
function trimLine(line: Buffer, number: number): Buffer {
  const start = number === 1 && line.indexOf(byteOrderMark) === 0 ? byteOrderMark.length : 0;
  return line.subarray(start, line.at(-1) === 0x0d ? -1 : undefined);
}

const byteOrderMark = Buffer.from([0xef, 0xbb, 0xbf]);
