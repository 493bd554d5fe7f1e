/** Cuts to at most `limit` code units, marker included, never through a surrogate pair. */
export function cutText(text: string, limit: number): string {
  if (text.length <= limit) return text;
  const marker = `\n[cut: the whole text has ${text.length} characters]`;
  const head = text.slice(0, Math.max(0, limit - marker.length));
  const last = head.charCodeAt(head.length - 1);
  return (last >= 0xd800 && last <= 0xdbff ? head.slice(0, -1) : head) + marker;
}
