import { sql } from "kysely";
import type { Db, Tx } from "./database.ts";

/** Content of a file, with its hash. */
export interface Blob {
  /** 64 lower-case hex digits. */
  readonly sha256: string;
  readonly bytes: Uint8Array;
}

/**
 * Stores contents that are not there yet and holds the others: the caller's files point at them in the same transaction.
 * The row lock and `loose_at` keep the pruner off until then: it skips what is locked, and looks at the time again once it
 * has the lock. Contents go in the order of their hashes, so that two requests with the same ones do not wait for each other.
 */
export async function holdBlobs(tx: Tx, blobs: readonly Blob[], now: Date): Promise<void> {
  const distinct = new Map(blobs.map((blob) => [blob.sha256, blob]));
  const ordered = [...distinct.values()].sort((a, b) => (a.sha256 < b.sha256 ? -1 : 1));
  if (ordered.length > 0) await holdStatement(ordered, now).execute(tx);
}

/**
 * All contents as one parameter, cut apart by the database: pg sends a Buffer as it is, but an array of them as text of
 * twice the length.
 */
function holdStatement(blobs: readonly Blob[], now: Date) {
  const sizes = blobs.map(({ bytes }) => bytes.length);
  const starts: number[] = [];
  let next = 1;
  for (const size of sizes) {
    starts.push(next);
    next += size;
  }
  return sql`
    insert into blobs (sha256, size, data, created_at, loose_at)
    select decode(b.sha256, 'hex'), b.size, substring(${joinBytes(blobs)}::bytea from b.start for b.size), ${now}::timestamptz, ${now}::timestamptz
    from unnest(${blobs.map(({ sha256 }) => sha256)}::text[], ${starts}::int[], ${sizes}::int[]) as b (sha256, start, size)
    on conflict (sha256) do update set loose_at = greatest(blobs.loose_at, excluded.loose_at)`;
}

function joinBytes(blobs: readonly Blob[]): Buffer {
  const [first] = blobs;
  if (blobs.length > 1 || first === undefined) return Buffer.concat(blobs.map(({ bytes }) => bytes));
  const { buffer, byteOffset, byteLength } = first.bytes;
  return Buffer.from(buffer, byteOffset, byteLength);
}

/** Says that files which pointed at these contents are gone; the pruner looks at them again after its hour. */
export async function noteLooseBlobs(tx: Tx, sha256s: readonly Buffer[], now: Date): Promise<void> {
  if (sha256s.length === 0) return;
  const hashes = [...new Set(sha256s.map((sha256) => sha256.toString("hex")))];
  await sql`
    update blobs set loose_at = greatest(loose_at, ${now}::timestamptz)
    where sha256 in (
      select b.sha256 from unnest(${hashes}::text[]) as h (sha256) join blobs b on b.sha256 = decode(h.sha256, 'hex')
      order by b.sha256 for no key update of b
    )`.execute(tx);
}

/**
 * Removes contents that nothing has pointed at since a time, and strikes those from its list that something points at. Oldest
 * first; looks at `limit` at most and returns how many it looked at. Safe against a request that gives the same content at
 * that moment: the time of a row is read again under its lock, and a row that is locked is left for later.
 */
export async function pruneBlobs(db: Db, looseBefore: Date, limit: number): Promise<number> {
  const result = await pruneBlobsStatement(looseBefore, limit).execute(db);
  return Number(result.rows[0]!.looked_at);
}

export function pruneBlobsStatement(looseBefore: Date, limit: number) {
  return sql<{ looked_at: bigint }>`
    with due as materialized (
      select sha256 from blobs where loose_at is not null and loose_at <= ${looseBefore}::timestamptz
      order by loose_at limit ${limit}::bigint for update skip locked
    ), judged as materialized (
      select sha256, exists (select from attachments a where a.sha256 = due.sha256) as used from due
    ), gone as (
      delete from blobs using judged where blobs.sha256 = judged.sha256 and not judged.used
    ), kept as (
      update blobs set loose_at = null from judged where blobs.sha256 = judged.sha256 and judged.used
    )
    select count(*) as looked_at from judged`;
}

/** Bytes of a file's content from an offset, at most `limit`. Undefined when the file is gone. */
export async function readSlice(
  db: Db,
  attachment: bigint,
  offset: number,
  limit: number,
): Promise<Buffer | undefined> {
  const { rows } = await readSliceStatement(attachment, offset, limit).execute(db);
  return rows[0]?.slice;
}

/** Storage of the column is external, so a slice reads its own chunks alone. */
export function readSliceStatement(attachment: bigint, offset: number, limit: number) {
  return sql<{ slice: Buffer }>`
    select substring(b.data from ${offset + 1}::int for ${limit}::int) as slice
    from attachments a join blobs b on b.sha256 = a.sha256
    where a.id = ${attachment}::bigint`;
}
