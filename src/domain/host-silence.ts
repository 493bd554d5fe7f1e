/**
 * A host is taken for gone when nothing was heard of it for this long: the longest wait of a claim (50 s), half as much
 * again. Then runs of its agents say that nobody serves them, and another instance may take its place by a mere claim.
 */
export const hostSilenceMs = 75_000;
