const quote = 0x22;
const backslash = 0x5c;
const openBrace = 0x7b;
const closeBrace = 0x7d;
const openBracket = 0x5b;
const closeBracket = 0x5d;
const comma = 0x2c;
const colon = 0x3a;

/**
 * The exact bytes of one member of a JSON object, so that what was written can be kept as it was written: numbers, spacing
 * and escapes survive, which a parse and a print would not guarantee. `json` must be valid JSON. Like JSON.parse, the last
 * of several members of the same name counts. Undefined when it is no object or has no such member.
 */
export function jsonMember(json: Uint8Array, name: string): Uint8Array | undefined {
  let at = skipSpace(json, 0);
  if (json[at] !== openBrace) return undefined;
  let found: Uint8Array | undefined;
  at = skipSpace(json, at + 1);
  while (at < json.length && json[at] !== closeBrace) {
    const keyEnd = stringEnd(json, at);
    const key = JSON.parse(new TextDecoder().decode(json.subarray(at, keyEnd))) as unknown;
    at = skipSpace(json, keyEnd);
    if (json[at] !== colon) return undefined;
    const start = skipSpace(json, at + 1);
    const end = valueEnd(json, start);
    if (key === name) found = json.subarray(start, end);
    at = skipSpace(json, end);
    if (json[at] === comma) at = skipSpace(json, at + 1);
  }
  return found;
}

function skipSpace(json: Uint8Array, from: number): number {
  let at = from;
  while (json[at] === 0x20 || json[at] === 0x09 || json[at] === 0x0a || json[at] === 0x0d) at++;
  return at;
}

/** Index after the string that starts at `from`. */
function stringEnd(json: Uint8Array, from: number): number {
  let at = from + 1;
  while (at < json.length && json[at] !== quote) at += json[at] === backslash ? 2 : 1;
  return at + 1;
}

/** Index after the value that starts at `from`. */
function valueEnd(json: Uint8Array, from: number): number {
  const first = json[from];
  if (first === quote) return stringEnd(json, from);
  if (first !== openBrace && first !== openBracket) return scalarEnd(json, from);
  let depth = 0;
  let at = from;
  while (at < json.length) {
    const byte = json[at];
    if (byte === quote) {
      at = stringEnd(json, at);
      continue;
    }
    if (byte === openBrace || byte === openBracket) depth++;
    if (byte === closeBrace || byte === closeBracket) depth--;
    at++;
    if (depth === 0) return at;
  }
  return at;
}

function scalarEnd(json: Uint8Array, from: number): number {
  let at = from;
  while (at < json.length && json[at] !== comma && json[at] !== closeBrace && json[at]! > 0x20) at++;
  return at;
}
