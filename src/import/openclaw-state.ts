import JSON5 from "json5";
import type { JsonObject } from "../domain/json.ts";
import { type KeyContext, parseSessionKey } from "../domain/session-key.ts";
import { type OpenclawRow, readOpenclawRow } from "./openclaw-row.ts";
import { isJsonObject, parseJson, readText } from "./read-values.ts";
import type { ImportNotes } from "./report.ts";
import { type StateDirectory, StateFileError } from "./state-directory.ts";

/** What the store files of a state directory hold, without any transcript. */
export interface OpenclawState {
  readonly settings: Omit<KeyContext, "defaultAgentId">;
  readonly stores: readonly OpenclawStore[];
  /** Requester of each spawned session, from the spawn registry: for rows that name none themselves. */
  readonly requesters: ReadonlyMap<string, string>;
}

export interface OpenclawStore {
  /** Name of the agent's directory. */
  readonly agent: string;
  /** Path of its sessions inside the state directory. */
  readonly directory: string;
  /** Names of the files there. */
  readonly files: readonly string[];
  readonly rows: readonly { readonly key: string; readonly row: OpenclawRow }[];
  /** Rows in the store file, unreadable ones included. */
  readonly found: number;
}

export const storeFile = "sessions.json";

const agentIdPattern = /^[a-z0-9][a-z0-9_-]{0,63}$/;

/** Reads the configuration, the spawn registry and every agent's session store; what cannot be read is noted and passed over. */
export async function readOpenclawState(directory: StateDirectory, notes: ImportNotes): Promise<OpenclawState> {
  const settings = await readSettings(directory, notes);
  const stores: OpenclawStore[] = [];
  for (const agent of await listAgents(directory, notes)) {
    const store = await readStore(directory, agent, notes);
    if (store !== undefined) stores.push(store);
  }
  return { settings, stores, requesters: await readRequesters(directory, settings, notes) };
}

async function readSettings(directory: StateDirectory, notes: ImportNotes): Promise<OpenclawState["settings"]> {
  const file = "openclaw.json";
  let session: JsonObject = {};
  try {
    const config: unknown = JSON5.parse((await directory.readText(file)) ?? "{}");
    if (isJsonObject(config) && isJsonObject(config["session"])) session = config["session"];
  } catch (error) {
    const detail = `${error instanceof StateFileError ? error.message : "it is no JSON5"}; session.mainKey and session.scope are taken as their defaults`;
    notes.add({ reason: "config_unreadable", file, detail, lost: false });
  }
  const mainKey = readText(session["mainKey"])?.trim().toLowerCase();
  return { mainKey: mainKey || "main", scope: session["scope"] === "global" ? "global" : "per-sender" };
}

async function listAgents(directory: StateDirectory, notes: ImportNotes): Promise<string[]> {
  const agents = await attempt(
    async () => (await directory.list("agents")) ?? absent("agents"),
    (error) => notes.add({ reason: "state_unreadable", file: "agents", detail: error.message, lost: true }),
  );
  return (agents ?? []).filter((agent) => {
    if (agent.startsWith(".") || agentIdPattern.test(agent)) return !agent.startsWith(".");
    const detail = "its name is no agent id: lower-case letters, digits, _ and -, at most 64";
    notes.add({ reason: "agent_directory_invalid", file: `agents/${agent}`, detail, lost: true });
    return false;
  });
}

function absent(path: string): never {
  throw new StateFileError(`there is no ${path} directory`);
}

async function readStore(
  directory: StateDirectory,
  agent: string,
  notes: ImportNotes,
): Promise<OpenclawStore | undefined> {
  const path = `agents/${agent}/sessions`;
  const file = `${path}/${storeFile}`;
  const note = (place: string) => (error: StateFileError) =>
    notes.add({
      reason: error.outside ? "outside_state_directory" : "store_unreadable",
      file: place,
      detail: error.message,
      lost: true,
    });
  const files = await attempt(() => directory.list(path), note(path));
  if (files === undefined) return undefined;
  const text = await attempt(() => directory.readText(file), note(file));
  const entries = text === undefined ? {} : parseJson(text.replace(/^\ufeff/, ""));
  if (!isJsonObject(entries)) {
    notes.add({ reason: "store_unreadable", file, detail: "it is no JSON object", lost: true });
    return { agent, directory: path, files, rows: [], found: 0 };
  }
  const rows = Object.entries(entries).flatMap(([key, value]) => {
    const row = readOpenclawRow(value);
    if (!("problem" in row)) return [{ key, row }];
    notes.add({ reason: "row_invalid", file, key, detail: row.problem, lost: true });
    return [];
  });
  return { agent, directory: path, files, rows, found: Object.keys(entries).length };
}

/** Spawned session → requester, both as canonical keys. */
async function readRequesters(
  directory: StateDirectory,
  settings: OpenclawState["settings"],
  notes: ImportNotes,
): Promise<Map<string, string>> {
  const file = "subagents/runs.json";
  const note = (detail: string) => notes.add({ reason: "spawn_registry_unreadable", file, detail, lost: false });
  const text = await attempt(
    () => directory.readText(file),
    (error) => note(error.message),
  );
  const requesters = new Map<string, string>();
  if (text === undefined) return requesters;
  const registry = parseJson(text);
  if (!isJsonObject(registry) || !isJsonObject(registry["runs"])) {
    note("it is no JSON object with runs");
    return requesters;
  }
  for (const run of Object.values(registry["runs"])) {
    if (!isJsonObject(run)) continue;
    const child = canonicalKey(readText(run["childSessionKey"]), settings);
    const requester = canonicalKey(readText(run["requesterSessionKey"]), settings);
    if (child !== undefined && requester !== undefined) requesters.set(child, requester);
  }
  return requesters;
}

function canonicalKey(text: string | undefined, settings: OpenclawState["settings"]): string | undefined {
  if (text === undefined) return undefined;
  const key = parseSessionKey(text, { ...settings, defaultAgentId: "main" });
  return "problem" in key ? undefined : key.key;
}

async function attempt<T>(
  read: () => Promise<T | undefined>,
  note: (error: StateFileError) => void,
): Promise<T | undefined> {
  try {
    return await read();
  } catch (error) {
    if (!(error instanceof StateFileError)) throw error;
    note(error);
    return undefined;
  }
}
