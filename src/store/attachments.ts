import { type Selectable, sql } from "kysely";
import type { AttachmentFile } from "../domain/attachments.ts";
import type { Target } from "../domain/visibility.ts";
import { noteLooseBlobs } from "./blobs.ts";
import type { Db, Tx } from "./database.ts";
import type { AttachmentTable } from "./spawn-tables.ts";

/** A file about to be stored; its content is there already. */
export interface NewStoredFile extends Omit<AttachmentFile, "createdAt"> {
  readonly nameKey: string;
  readonly position: number;
}

/** Whose files they are: a session's input, or the output of an attempt of one of its runs. */
export type AttachmentOwner =
  | { readonly direction: "input"; readonly session: bigint }
  | { readonly direction: "output"; readonly session: bigint; readonly run: bigint; readonly attempt: number };

/** A file that a run gave back, as the rules about the next one see it. */
export interface OutputFile {
  readonly id: bigint;
  readonly nameKey: string;
  readonly bytes: number;
  readonly attempt: number;
  readonly position: number;
}

/** A file, and what decides who may see it. */
export interface AttachmentTarget {
  readonly id: bigint;
  readonly file: AttachmentFile;
  readonly target: Target & { readonly reserved: boolean };
  /** Address of the session that sent the run which gave it back. */
  readonly senderAddressId?: bigint;
}

const directions = { input: 1, output: 2 } as const;

/** Stores files in one statement. Their contents were held by holdBlobs in the same transaction. */
export async function insertAttachments(
  tx: Tx,
  owner: AttachmentOwner,
  files: readonly NewStoredFile[],
  now: Date,
): Promise<void> {
  if (files.length === 0) return;
  const { run, attempt } = owner.direction === "output" ? owner : { run: null, attempt: 0 };
  await sql`
    insert into attachments (attachment_id, session, run, direction, position, attempt, name, name_key, mime_type, size, sha256, created_at)
    select f.attachment_id, ${owner.session}::bigint, ${run}::bigint, ${directions[owner.direction]}::smallint, f.position,
      ${attempt}::int, f.name, f.name_key, f.mime_type, f.size, decode(f.sha256, 'hex'), ${now}::timestamptz
    from unnest(
      ${files.map((file) => file.attachmentId)}::uuid[],
      ${files.map((file) => file.position)}::int[],
      ${files.map((file) => file.name)}::text[],
      ${files.map((file) => file.nameKey)}::text[],
      ${files.map((file) => file.mimeType ?? null)}::text[],
      ${files.map((file) => file.bytes)}::bigint[],
      ${files.map((file) => file.sha256)}::text[]
    ) as f (attachment_id, position, name, name_key, mime_type, size, sha256)`.execute(tx);
}

/** The files a session was given, in the order of the request. */
export async function listInputFiles(db: Db, session: bigint): Promise<AttachmentFile[]> {
  const { rows } = await inputFilesStatement(session).execute(db);
  return rows.map(rowToFile);
}

export function inputFilesStatement(session: bigint) {
  return sql<FileRow>`
    select ${fileColumns} from attachments where session = ${session}::bigint and direction = 1 order by position`;
}

/** The files that runs gave back, oldest first; a run without any is missing from the answer. One statement. */
export async function listOutputFiles(
  db: Db,
  runs: readonly bigint[],
): Promise<ReadonlyMap<bigint, readonly AttachmentFile[]>> {
  if (runs.length === 0) return new Map();
  const { rows } = await outputFilesStatement(runs).execute(db);
  const rowsOf = Map.groupBy(rows, (row) => row.run);
  return new Map([...rowsOf].map(([run, own]) => [run, own.map(rowToFile)]));
}

export function outputFilesStatement(runs: readonly bigint[]) {
  return sql<FileRow & { run: bigint }>`
    select run, ${fileColumns} from attachments where run = any(${[...runs]}::bigint[]) order by run, position`;
}

/** What a locked run has given back so far, oldest first. */
export async function listOutputsOf(tx: Tx, run: bigint): Promise<OutputFile[]> {
  const { rows } = await sql<{ id: bigint; name_key: string; size: bigint; attempt: number; position: number }>`
    select id, name_key, size, attempt, position from attachments where run = ${run}::bigint order by position`.execute(
    tx,
  );
  return rows.map(({ id, name_key: nameKey, size, attempt, position }) => {
    return { id, nameKey, bytes: Number(size), attempt, position };
  });
}

/** Notes on a locked run how many files it has given back. */
export async function recordOutputCount(tx: Tx, run: bigint, count: number): Promise<void> {
  await tx.updateTable("runs").set({ output_files: count }).where("id", "=", run).execute();
}

/** A file of a session that was not deleted, with the facts that visibility asks for; one statement. */
export async function findAttachmentTarget(db: Db, attachmentId: string): Promise<AttachmentTarget | undefined> {
  const { rows } = await attachmentTargetStatement(attachmentId).execute(db);
  const [row] = rows;
  if (row === undefined) return undefined;
  const { agent_id: agentId, address_id: addressId, root_id: rootId, path, reserved, sender } = row;
  return {
    id: row.id,
    file: rowToFile(row),
    target: { agentId, addressId, rootId, path, reserved },
    ...(sender !== null && { senderAddressId: sender }),
  };
}

export function attachmentTargetStatement(attachmentId: string) {
  return sql<TargetRow>`
    select a.id, a.attachment_id, a.name, a.size, a.sha256, a.mime_type, a.created_at,
      s.agent_id, s.address_id, s.root_id, s.path, s.reserved, source.address_id as sender
    from attachments a
    join sessions s on s.id = a.session
    left join runs r on r.id = a.run
    left join sessions source on source.session_id = r.source_session_id
    where a.attachment_id = ${attachmentId}::uuid and s.state <> 4`;
}

/**
 * Removes files by their internal ids. Their contents are the pruner's to remove. `coming` are the hashes of contents that
 * the caller holds next: locked here with the others, in the one order of all contents.
 */
export async function deleteAttachments(
  tx: Tx,
  ids: readonly bigint[],
  coming: readonly string[],
  now: Date,
): Promise<void> {
  if (ids.length === 0) return;
  const { rows } = await sql<{ sha256: Buffer }>`
    delete from attachments where id = any(${[...ids]}::bigint[]) returning sha256`.execute(tx);
  await noteLooseBlobs(tx, [...rows.map(toHash), ...coming.map((hex) => Buffer.from(hex, "hex"))], now);
}

/** Removes every file of a locked session, given or given back. */
export async function deleteSessionAttachments(tx: Tx, session: bigint, now: Date): Promise<void> {
  const { rows } = await sql<{ sha256: Buffer }>`
    delete from attachments where session = ${session}::bigint returning sha256`.execute(tx);
  await noteLooseBlobs(tx, rows.map(toHash), now);
}

const fileColumns = sql`attachment_id, name, size, sha256, mime_type, created_at`;

type FileRow = Pick<
  Selectable<AttachmentTable>,
  "attachment_id" | "name" | "size" | "sha256" | "mime_type" | "created_at"
>;

interface TargetRow extends FileRow {
  id: bigint;
  agent_id: string;
  address_id: bigint;
  root_id: bigint;
  path: bigint[];
  reserved: boolean;
  sender: bigint | null;
}

function toHash({ sha256 }: { sha256: Buffer }): Buffer {
  return sha256;
}

function rowToFile(row: FileRow): AttachmentFile {
  return {
    attachmentId: row.attachment_id,
    name: row.name,
    bytes: Number(row.size),
    sha256: row.sha256.toString("hex"),
    ...(row.mime_type !== null && { mimeType: row.mime_type }),
    createdAt: row.created_at,
  };
}
