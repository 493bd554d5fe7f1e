import { z } from "zod";

/** Says which known key an unknown one was probably meant to be, else which keys are known in its place. */
export function nearestKey(key: string, parent: readonly PropertyKey[], schema: z.ZodType): string {
  const siblings = knownPaths(schema)
    .filter((path) => path.length === parent.length + 1 && parent.every((step, i) => matchesStep(path[i]!, step)))
    .map((path) => path.at(-1)!);
  const close = siblings
    .map((name) => ({ name, distance: editDistance(key.toLowerCase(), name.toLowerCase()) }))
    .filter(({ name, distance }) => distance <= Math.max(1, Math.floor(name.length / 3)))
    .sort((a, b) => a.distance - b.distance)[0];
  if (close !== undefined) return `no key of this name; did you mean "${close.name}"?`;
  const elsewhere = knownPaths(schema).find((path) => path.at(-1) === key);
  if (elsewhere !== undefined)
    return `no key of this name; did you mean "${elsewhere.join(".").replaceAll(".[]", "[]")}"?`;
  return `no key of this name; known here: ${siblings.join(", ")}`;
}

function matchesStep(known: string, step: PropertyKey): boolean {
  return known === "{}" || known === (typeof step === "number" ? "[]" : step);
}

/** Every key of the schema as a path; "[]" stands for any item of a list, "{}" for any key of a map. Sections come before what is in them. */
export function knownPaths(schema: z.ZodType): string[][] {
  const inner = unwrap(schema);
  if (inner instanceof z.ZodArray) {
    return knownPaths(inner.element as z.ZodType).map((path) => ["[]", ...path]);
  }
  if (inner instanceof z.ZodRecord) {
    return knownPaths(inner.valueType as z.ZodType).map((path) => ["{}", ...path]);
  }
  if (!(inner instanceof z.ZodObject)) return [];
  return Object.entries(inner.shape).flatMap(([key, field]) => [
    [key],
    ...knownPaths(field as z.ZodType).map((path) => [key, ...path]),
  ]);
}

/** Takes off defaults, optionality and transforms until the shape itself is there. */
function unwrap(schema: z.ZodType): z.ZodType {
  const definition = schema.def as { innerType?: z.ZodType; in?: z.ZodType };
  const inner = definition.innerType ?? definition.in;
  return inner === undefined ? schema : unwrap(inner);
}

/** Insertions, deletions, replacements and swaps of neighbours between two words. */
function editDistance(a: string, b: string): number {
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, j) => j)];
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const replace = rows[i - 1]![j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      const swap =
        i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1] ? rows[i - 2]![j - 2]! + 1 : Infinity;
      row.push(Math.min(rows[i - 1]![j]! + 1, row[j - 1]! + 1, replace, swap));
    }
    rows.push(row);
  }
  return rows[a.length]![b.length]!;
}
