import type { PlannedSession } from "./openclaw-plan.ts";
import { type OpenclawStore, storeFile } from "./openclaw-state.ts";
import type { ImportNotes } from "./report.ts";

const transcriptEnd = ".jsonl";
const archived = /\.jsonl\.(deleted|reset|bak)\./;

/**
 * The transcript of a session: the file its row names, else the one named after its id; always one beside the session
 * store, whatever directory the row names. Undefined when there is none.
 */
export function chooseTranscript(planned: PlannedSession, notes: ImportNotes): string | undefined {
  const { row, store } = planned;
  const named = row.sessionFile?.split(/[/\\]/) ?? [];
  const names = [named.at(-1), `${row.sessionId}${transcriptEnd}`];
  const name = names.find((each) => each?.endsWith(transcriptEnd) && store.files.includes(each));
  if (name !== undefined) return `${store.directory}/${name}`;
  // A state directory that was moved still names its old place, with the same last steps.
  const elsewhere = named.length > 1 && !named.slice(0, -1).join("/").endsWith(store.directory);
  notes.add({
    reason: elsewhere ? "transcript_elsewhere" : "transcript_missing",
    file: `${store.directory}/${storeFile}`,
    key: planned.sourceKey,
    detail: elsewhere
      ? "sessionFile names another directory, which is not read; the session has no messages"
      : "there is no transcript; the session has no messages",
    lost: elsewhere,
  });
  return undefined;
}

/** Notes the transcripts that no session uses: the source shows them no more. */
export function noteLeftovers(stores: readonly OpenclawStore[], used: ReadonlySet<string>, notes: ImportNotes): void {
  for (const store of stores) {
    for (const name of store.files) {
      const file = `${store.directory}/${name}`;
      if (archived.test(name)) {
        notes.add({ reason: "transcript_archived", file, detail: "the source has put it away", lost: false });
      } else if (name.endsWith(transcriptEnd) && !used.has(file)) {
        notes.add({
          reason: "transcript_without_session",
          file,
          detail: "no session of the store uses it",
          lost: false,
        });
      }
    }
  }
}
