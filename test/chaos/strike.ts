import { setTimeout as sleep } from "node:timers/promises";
import type { Arena } from "./arena.ts";
import type { Blow } from "./schedule.ts";
import type { Story } from "./story.ts";
import type { Subject } from "./subject.ts";

/** Deals the blows at their times and lets everyone get up again; at the end everyone stands. A blow that finds its victim down is skipped. */
export async function strike(arena: Arena, blows: readonly Blow[], story: Story, signal: AbortSignal): Promise<void> {
  const startedAt = performance.now();
  const recoveries = new Set<Promise<void>>();
  for (const blow of blows) {
    const wait = blow.atMs - (performance.now() - startedAt);
    const waited = await sleep(Math.max(0, wait), true, { signal }).catch(() => false);
    if (!waited) break;
    const recovery = deal(arena, blow, story).finally(() => recoveries.delete(recovery));
    recoveries.add(recovery);
  }
  await Promise.all(recoveries);
}

async function deal(arena: Arena, blow: Blow, story: Story): Promise<void> {
  if (blow.act === "kill_postmaster") {
    if (await arena.killPostmaster()) tell(story, "kill postmaster");
    return;
  }
  if (!("victim" in blow)) return dealToAll(arena, blow, story);
  const subject = (blow.victim.kind === "server" ? arena.servers : arena.hosts)[blow.victim.index];
  if (!subject?.isUp) return;
  tell(story, `${blow.act} ${blow.victim.kind}`, subject.name);
  if (blow.act === "freeze") return subject.freeze(blow.pauseMs);
  await subject[blow.act]();
  await sleep(blow.pauseMs);
  await subject.start();
}

async function dealToAll(
  { servers, hosts }: Arena,
  { act, pauseMs }: Extract<Blow, { act: "kill_everything" | "term_everything" }>,
  story: Story,
): Promise<void> {
  const standing = [...servers, ...hosts].filter((subject) => subject.isUp);
  if (standing.length === 0) return;
  tell(story, act.replace("_", " "), standing.map(({ name }) => name).join(", "));
  const way = act === "kill_everything" ? "kill" : "term";
  const fall = (subject: Subject) => subject[way]();
  await Promise.all(standing.map(fall));
  await sleep(pauseMs);
  await Promise.all(standing.map((subject) => subject.start()));
}

function tell(story: Story, blow: string, whom = ""): void {
  story.count(`blows: ${blow}`);
  story.tell(whom === "" ? blow : `${blow}: ${whom}`);
}
