/**
 * Why something was not brought over, or not as it stood. `lost` tells whether the state directory holds content that is
 * now missing here; only that makes an import end with a failure.
 */
export type ImportReason =
  // files and directories
  | "state_unreadable"
  | "agent_directory_invalid"
  | "outside_state_directory"
  | "store_unreadable"
  | "spawn_registry_unreadable"
  | "config_unreadable"
  | "transcript_archived"
  | "transcript_without_session"
  | "transcript_unreadable"
  // sessions
  | "row_invalid"
  | "key_invalid"
  | "cron_run_twin"
  | "duplicate_session_id"
  | "earlier_session"
  | "key_in_use"
  | "session_id_replaced"
  | "changed_here"
  | "deleted_here"
  | "diverged"
  | "transcript_changed"
  | "transcript_missing"
  | "transcript_elsewhere"
  | "parent_missing"
  | "parent_cycle"
  | "field_invalid"
  | "time_unreadable"
  | "database_refused"
  // lines of a transcript
  | "line_broken"
  | "line_truncated"
  | "line_too_long"
  | "message_invalid"
  | "entry_unknown";

export interface ImportItem {
  readonly reason: ImportReason;
  /** Path inside the state directory. */
  readonly file: string;
  readonly key?: string;
  readonly line?: number;
  readonly detail: string;
  readonly lost: boolean;
}

export interface ImportReport {
  readonly source: "openclaw";
  readonly stateDirectory: string;
  readonly dryRun: boolean;
  readonly sessions: SessionCounts;
  readonly messages: MessageCounts;
  /** The source's `session.mainKey` and `session.scope`; a server whose settings differ reads keys differently. */
  readonly mainKey: string;
  readonly scope: string;
  /** How often a field stood in a session row that has no place here. */
  readonly fieldsNotKept: Readonly<Record<string, number>>;
  readonly items: readonly ImportItem[];
  /** Lines that have a reason of their own but are not listed, since the same file lists ten of them. */
  readonly itemsNotShown: number;
  /** True when nothing was lost. */
  readonly complete: boolean;
}

export interface SessionCounts {
  /** Rows in the store files. */
  found: number;
  imported: number;
  unchanged: number;
  updated: number;
  /** Left out or left alone for a reason that stands in `items`. */
  skipped: number;
  failed: number;
}

export interface MessageCounts {
  imported: number;
  unchanged: number;
}

/** Lines of one transcript beyond this many for one reason are only counted. */
const shownPerFile = 10;

/** Collects what the import has to say while it goes. */
export class ImportNotes {
  readonly items: ImportItem[] = [];
  itemsNotShown = 0;
  lost = false;
  readonly #perFile = new Map<string, number>();

  add(item: ImportItem): void {
    this.lost ||= item.lost;
    const place = `${item.reason} ${item.file}`;
    const count = (this.#perFile.get(place) ?? 0) + 1;
    this.#perFile.set(place, count);
    // Broken lines may be many; sessions and files are each named.
    if (count > shownPerFile && item.line !== undefined) this.itemsNotShown++;
    else this.items.push(item);
  }
}
