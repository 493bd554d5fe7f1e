import type { AttachmentProblemCode } from "./attachments.ts";
import { utf8Length } from "./utf8.ts";

/** Bytes of UTF-8 that common file systems take for one name. */
export const maxNameBytes = 255;

/** What a file is called, and what its name must differ in from the others' beside it. */
export interface AttachmentName {
  /** NFC: what is shown is what is written. */
  readonly name: string;
  readonly nameKey: string;
}

/**
 * Name and key of a file. Two names with one key may be one file somewhere: on file systems that compare without regard to
 * case or to the form of accents, and that leave out invisible characters as they do so (HFS+, APFS, ext4 with casefold).
 */
export function toAttachmentName(given: string): AttachmentName {
  const name = given.toWellFormed().normalize("NFC");
  const visible = name.normalize("NFD").replace(/\p{Default_Ignorable_Code_Point}/gu, "");
  return { name, nameKey: foldCase(visible).normalize("NFC") };
}

/**
 * Full case folding, one code point at a time, so that a sigma at the end of a word folds as any other: to small letters,
 * since "ẞ" has no capital of its own, to capitals, since "ß" becomes "SS" there alone, and back. The dotless i folds to
 * itself, as Unicode has it.
 */
function foldCase(text: string): string {
  return Array.from(text, (letter) =>
    letter === "ı" ? letter : letter.toLowerCase().toUpperCase().toLowerCase(),
  ).join("");
}

const patterns: readonly (readonly [AttachmentProblemCode, RegExp])[] = [
  ["NAME_PATH", /[/\\]/],
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the rule is about them
  ["NAME_CONTROL", /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/],
  ["NAME_BIDI", /\p{Bidi_Control}/u],
  ["NAME_MARKUP", /[<>]/],
  ["NAME_SPACE", /^[\s\p{White_Space}]|[\s\p{White_Space}]$/u],
];

const reserved: readonly string[] = [".", "..", ".manifest.json"];

/** The rules a name breaks on its own (S6.6, C58, C61). */
export function findNameProblems(given: string): AttachmentProblemCode[] {
  const { name, nameKey } = toAttachmentName(given);
  return [
    ...(given.isWellFormed() ? [] : (["NAME_MALFORMED"] as const)),
    ...(nameKey === "" ? (["NAME_EMPTY"] as const) : []),
    ...(reserved.includes(nameKey) ? (["NAME_RESERVED"] as const) : []),
    ...patterns.filter(([, pattern]) => pattern.test(name)).map(([code]) => code),
    ...(utf8Length(name) > maxNameBytes ? (["NAME_TOO_LONG"] as const) : []),
  ];
}
