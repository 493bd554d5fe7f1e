/**
 * Masks secrets for readers of other sessions (S4.4, C113). Works on copies: what is stored, and what a host replays to
 * its model, is never altered (C114). Errs on the side of masking, and masking twice changes nothing. Run it before
 * texts are cut: half a key fits no shape.
 *
 * Every rule takes time linear to the text, whatever the text: a rule starts at a fixed word, looks ahead a bounded way,
 * and once it has read further it matches, so that what it read is not read again from the next start.
 */
import type { JsonObject, JsonValue } from "./json.ts";
import type { Message, Part } from "./message.ts";

/** What stands where a secret stood. */
export const MASK = "[redacted]";

/** Objects nested deeper than this are masked whole: nobody looks there, and looking costs stack. */
const deepestLook = 64;

/** One character of an unquoted value. */
const value = String.raw`[^\s"',;&}]`;

/** Words that name a secret, at the end of a longer name too. SESSION_KEY and the like name an address. */
const secretWord = `(?:(?i:(?:api|access|private|secret|signing|encryption)[_-]?key|secret|token|passw(?:or)?d|passphrase|credentials?|authorization)|[A-Z0-9](?<!SESSION|PUBLIC|PRIMARY|FOREIGN)_(?:KEY|PASS))`;
const name = String.raw`${secretWord}\\*["']?`;
const quote = String.raw`\\*["']`;

/** Values that say something about a secret, or its type in source code, but are none. */
const harmless = String.raw`(?i:true|false|null|none|undefined|string|number|boolean|any|unknown|str|int|bool|bytes)(?![^\s"',;&})\]?|>[])`;

/** Start of a token: behind anything but a letter or digit, or behind an escape such as the \n of JSON in a text. */
const start = String.raw`(?<=^|[^A-Za-z0-9]|\\[bfnrt])`;
/** A value behind a colon that is no word of a sentence. */
const tellingValue = String.raw`(?=[^\s\d"',;&}]{0,64}\d)(?=${value}{6})|(?=${value}{32})|(?=${value}{1,31}(?!${value})(?![ \t]+\S))`;
const afterFlag = String.raw`(?<=--[\w-]{0,60})[ \t]+`;

/** At least so many of these characters: a look and a plain loop, as a counted loop costs stack for each character of a text. */
const run = (chars: string, least: number) => `(?=${chars}{${least}})${chars}+`;
const plain = "[A-Za-z0-9]";
const dashed = String.raw`[\w-]`;
const bearer = "[A-Za-z0-9_.~+/=-]";

/** Tokens that are known by how they look: this service's own, model and cloud providers, code hosts, registries, chat platforms. */
const tokenShapes = [
  `ast_[0-9a-f]{32}_${run(dashed, 16)}|asr_${run(dashed, 40)}`,
  String.raw`sk-(?=[A-Za-z_-]{0,64}\d)${run(dashed, 8)}|sk-${run(dashed, 32)}`,
  `gh[pousr]_${run(plain, 16)}|github_pat_${run(dashed, 16)}|glpat-${run(dashed, 16)}`,
  `xox[a-z]-${run(dashed, 8)}|xapp-${run(dashed, 8)}`,
  `(?:gsk_|pplx-|npm_|hf_|xai-|r8_)${run(plain, 16)}|nvapi-${run(dashed, 16)}|pypi-${run(dashed, 32)}`,
  String.raw`AIza${run(dashed, 20)}|ya29\.${run(dashed, 16)}|(?:AKIA|ASIA)[A-Z0-9]{16}${plain}*`,
  `[rs]k_(?:live|test)_${run(plain, 8)}|whsec_${run("[A-Za-z0-9+/=]", 16)}`,
  String.raw`SG\.${run(dashed, 16)}\.${run(dashed, 16)}`,
].join("|");

/** In the order they are applied: shapes first, so that a rule on names sees their masks. Group 1 stays. */
const rules: readonly RegExp[] = [
  // Private keys in PEM form; one without an end goes to the end of the text. Certificates and public keys are public.
  /(-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----)[\s\S]*?(?=-----END |$)/g,
  // Passwords in URLs. A number before a path, query or fragment is a port.
  /(:\/\/[^\s:/@"'<>]*:)(?!\d{1,5}[/?#])(?:[^\s/"'<>]+(?=@)|(?:[^\s/@"'<>]|\/(?!\/)){1,256}(?=@)[^\s/"'<>]*(?=@))/g,
  new RegExp(`(${start})(?:${tokenShapes})`, "g"),
  // Telegram bot tokens; a UUID or hash behind a peer id is none.
  new RegExp(String.raw`((?<!\d))\d{6,12}:(?![0-9a-f-]{32})${run(dashed, 30)}`, "g"),
  // JSON Web Tokens.
  new RegExp(String.raw`((?<=^|[^\w-]|\\[bfnrt]))eyJ${run(dashed, 8)}\.${run(dashed, 8)}(?:\.${dashed}*){0,3}`, "g"),
  // Bearer tokens outside a header; "bearer responsibilities" is prose.
  new RegExp(
    String.raw`((?<![A-Za-z])(?i:bearer)[ \t]+)(?:(?=[A-Za-z._~+/-]{0,64}\d)${run(bearer, 12)}|${run(bearer, 32)})`,
    "g",
  ),
  // name = "value", "name": "value", \"name\":\"value\", --name "value": up to the same quote, or to the end of the line.
  new RegExp(
    String.raw`(${name}(?:[ \t]*(?::=?|={1,3}>?)[ \t]*|${afterFlag})(${quote}))(?!\2)[^\n]+?(?=(?<!\\)\2|$)`,
    "gm",
  ),
  new RegExp(String.raw`((?i:authorization)[ \t]*[:=][ \t]*(?i:bearer|basic|token|digest)[ \t]+)${value}+`, "g"),
  // NAME=value; comparisons and arrows are code.
  new RegExp(String.raw`(${name}[ \t]*:?=[ \t]*)(?![=>~]|${quote}|${harmless})${value}+`, "g"),
  // --name value
  new RegExp(`(${secretWord}${afterFlag})(?!-|${quote})${value}+`, "g"),
  // name: value, when it has a digit, is longer than words are, or is the last on its line; else it is prose ("the
  // secret: keep going"). The name of an agent in a session key names no secret.
  new RegExp(
    String.raw`(${name}(?<!\bagent:[\w-]{0,64})[ \t]*:[ \t]*)(?![:=]|${quote}|${harmless})(?:${tellingValue})${value}+`,
    "g",
  ),
];

const secretName = new RegExp(`(?:${secretWord}|(?i:(?:api|access|private)[_-]?key|secret|password)s)$`);

/** Masks the secrets in a text. Texts without any come back as they are. */
export function redactText(text: string): string {
  return rules.reduce((masked, rule) => masked.replace(rule, `$1${MASK}`), text);
}

/**
 * Masks strings anywhere in a JSON value, names of fields included, and whole values under names that say they are
 * secret. Returns the very same value when nothing had to be masked.
 */
export function redactJson(json: JsonValue): JsonValue {
  return redactValue(json, false, deepestLook);
}

/** Masks a part of a message, arguments of tool calls and unknown kinds of parts included. Returns the very same part when nothing had to be masked. */
export function redactPart(part: Part): Part {
  switch (part.type) {
    case "text": {
      const text = redactText(part.text);
      return text === part.text ? part : { ...part, text };
    }
    case "thinking": {
      // A provider's signature covers the whole text, so it goes with the first mask.
      const text = redactText(part.text);
      return text === part.text ? part : { type: "thinking", text };
    }
    case "tool_call": {
      const masked = redactJson(part.arguments);
      return masked === part.arguments ? part : { ...part, arguments: masked as JsonObject };
    }
    case "other": {
      const json = redactJsonText(part.json);
      return json === part.json ? part : { ...part, json };
    }
    case "image":
      return part;
  }
}

/**
 * Masks the messages of a page. `raw` goes in any case: it holds everything unmasked. `contentRedacted` says whether
 * anything a reader sees was masked.
 */
export function redactMessages(messages: readonly Message[]): {
  readonly messages: readonly Message[];
  readonly contentRedacted: boolean;
} {
  const masked = messages.map(({ raw: _raw, ...message }) => ({ ...message, parts: message.parts.map(redactPart) }));
  return {
    messages: masked,
    contentRedacted: masked.some(({ parts }, index) => parts.some((part, at) => part !== messages[index]?.parts[at])),
  };
}

/** What is no JSON is masked as the text it is. */
function redactJsonText(text: string): string {
  let json: JsonValue;
  try {
    json = JSON.parse(text) as JsonValue;
  } catch {
    return redactText(text);
  }
  const masked = redactJson(json);
  return masked === json ? text : JSON.stringify(masked);
}

function redactValue(json: JsonValue, secret: boolean, depth: number): JsonValue {
  if (typeof json === "string") return secret && json !== "" ? MASK : redactText(json);
  if (typeof json === "number") return secret ? MASK : json;
  if (json === null || typeof json !== "object") return json;
  if (depth === 0) return MASK;
  if (Array.isArray(json)) {
    const items = json.map((item: JsonValue) => redactValue(item, secret, depth - 1));
    return items.some((item, index) => item !== json[index]) ? items : json;
  }
  const fields = Object.entries(json as JsonObject).map(([field, item]) => {
    const masked = redactValue(item, secret || secretName.test(field), depth - 1);
    const shown = redactText(field);
    return { field: shown, item: masked, changed: shown !== field || masked !== item };
  });
  return fields.some(({ changed }) => changed)
    ? Object.fromEntries(fields.map(({ field, item }) => [field, item]))
    : json;
}
