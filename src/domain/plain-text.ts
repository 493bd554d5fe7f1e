/** Names, labels and other one-line texts: no control characters, which also keeps out the NUL no database text can hold. */
export function findTextProblem(text: string): string | undefined {
  if (!text.isWellFormed()) return "must be well-formed Unicode";
  return /\p{Cc}/u.test(text) ? "must not contain control characters" : undefined;
}
