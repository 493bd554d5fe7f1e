import type { CheckedAttachment } from "../domain/attachments.ts";
import type { Run } from "../domain/run.ts";
import type { HostEvent, StoredFile } from "../domain/run-event.ts";
import {
  deleteAttachments,
  insertAttachments,
  listOutputsOf,
  type OutputFile,
  recordOutputCount,
} from "../store/attachments.ts";
import { holdBlobs } from "../store/blobs.ts";
import type { Tx } from "../store/database.ts";
import { checkFiles, hashFile, toFile } from "./attachments.ts";
import type { App } from "./context.ts";

/**
 * Stores the files among the events of a held, locked run, in their order. The rules and limits of S6.6 hold for all files of
 * the run together: one of an earlier attempt is replaced by one of its name, one of this attempt is not. `first` is the
 * place of the first event in the request, for the fields of a refusal. Fails as checkFiles does, and has written nothing then.
 */
export async function storeOutputFiles(
  app: App,
  tx: Tx,
  run: Run,
  events: readonly HostEvent[],
  first: number,
): Promise<StoredFile[]> {
  const given = events.flatMap((event, index) =>
    event.type === "output_attachment"
      ? [{ file: event.file, field: `events[${first + index}].output_attachment` }]
      : [],
  );
  if (given.length === 0) return [];
  const held = await listOutputsOf(tx, run.id);
  const files = checkFiles(
    app,
    given.map(({ file }) => file),
    {
      all: "events",
      fieldOf: (index) => given[index]!.field,
      held: held.map(({ nameKey, bytes, attempt }) => ({ nameKey, bytes, replaceable: attempt !== run.attempt })),
    },
  );
  return replaceFiles(app, tx, run, held, files);
}

async function replaceFiles(
  app: App,
  tx: Tx,
  run: Run,
  held: readonly OutputFile[],
  files: readonly CheckedAttachment[],
): Promise<StoredFile[]> {
  const now = app.clock.now();
  const names = new Set(files.map(({ nameKey }) => nameKey));
  const replaced = held.filter(({ nameKey }) => names.has(nameKey)).map(({ id }) => id);
  const position = (held.at(-1)?.position ?? -1) + 1;
  const hashed = files.map((file, index) => ({ ...hashFile(app.ids.uuid(), file), position: position + index }));
  const coming = hashed.map(({ sha256 }) => sha256);
  await deleteAttachments(tx, replaced, coming, now);
  await holdBlobs(
    tx,
    hashed.map(({ sha256, content }) => ({ sha256, bytes: content })),
    now,
  );
  await insertAttachments(
    tx,
    { direction: "output", session: run.session, run: run.id, attempt: run.attempt },
    hashed,
    now,
  );
  await recordOutputCount(tx, run.id, held.length - replaced.length + hashed.length);
  return hashed.map(toFile);
}
