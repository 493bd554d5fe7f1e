import type { SessionSettings, UpdateSessionRequest } from "#gen/agentsessions/v1/session_service_pb.js";
import { toSendPolicyOverride } from "./session.ts";

/** What UpdateSession changes: the fields of the mask, an empty value clears (null). */
export function toSettingsChange({ updateMask, settings }: UpdateSessionRequest) {
  const change: { -readonly [K in keyof SettingsChange]: SettingsChange[K] } = {};
  for (const path of updateMask?.paths ?? []) Object.assign(change, changeOf(path, settings));
  return change;
}

interface SettingsChange {
  readonly label?: string | null;
  readonly displayName?: string | null;
  readonly modelOverride?: string | null;
  readonly thinkingLevel?: string | null;
  readonly verboseLevel?: string | null;
  readonly sendPolicy?: "allow" | "deny" | null;
}

/** Paths are checked by the request's rules; another one changes nothing. */
function changeOf(path: string, settings: SessionSettings | undefined): SettingsChange {
  switch (path) {
    case "label":
      return { label: settings?.label || null };
    case "display_name":
      return { displayName: settings?.displayName || null };
    case "model":
      return { modelOverride: settings?.model || null };
    case "thinking_level":
      return { thinkingLevel: settings?.thinkingLevel || null };
    case "verbose_level":
      return { verboseLevel: settings?.verboseLevel || null };
    case "send_policy":
      return { sendPolicy: (settings && toSendPolicyOverride(settings.sendPolicy)) ?? null };
    default:
      return {};
  }
}
