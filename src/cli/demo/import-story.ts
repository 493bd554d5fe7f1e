import { join } from "node:path";
import { type AgentSessions, type Message, Role, SendOutcome, type Session } from "../../client/index.ts";
import type { Turn } from "../../host/index.ts";
import type { ImportReport } from "../../import/report.ts";
import type { Stage, Story } from "./story.ts";

const stateDirectory = join(import.meta.dirname, "../../../test/fixtures/openclaw-state");

/** A transcript of 2,000 messages, `#0` to `#1999`. */
const longSession = "agent:main:hist-2000";

/** A day of a real OpenClaw comes over; its sessions are listed, read and talked to like any other. */
export const importStory: Story = {
  name: "import",
  summary: "a real OpenClaw state directory comes over, is read back to its first message and talked to",
  async run(stage) {
    await importTwice(stage);
    await listNewest(stage);
    await readToTheBeginning(stage);
    await sendIntoIt(stage);
  },
};

async function importTwice(stage: Stage): Promise<void> {
  stage.tell("$ agentsessions import openclaw test/fixtures/openclaw-state");
  const first = await runImport(stage);
  stage.tell(describe(first));
  for (const [reason, items] of Map.groupBy(first.items, (item) => item.reason)) {
    stage.tell(`  ${reason} (${items.length}): ${items[0]!.key ?? items[0]!.file}: ${items[0]!.detail}`);
  }
  stage.check(first.complete && first.sessions.imported === 77, "77 sessions were imported, nothing was lost");
  stage.tell("Once more: what is here already stays as it is.");
  const second = await runImport(stage);
  stage.tell(describe(second));
  stage.check(second.sessions.unchanged === 77 && second.messages.imported === 0, "a second import changes nothing");
}

async function runImport({ server }: Stage): Promise<ImportReport> {
  const args = ["import", "openclaw", stateDirectory, "--data-dir", server.dataDir, "--json"];
  const { code, stdout, stderr } = await server.runCli(args);
  if (code !== 0) throw new Error(`the import ended with exit code ${code}: ${stderr || stdout}`);
  return JSON.parse(stdout) as ImportReport;
}

function describe({ sessions, messages }: ImportReport): string {
  const rows = `${sessions.found} rows: ${sessions.imported} sessions imported, ${sessions.unchanged} unchanged, ${sessions.skipped} skipped`;
  return `${rows}; ${messages.imported} messages imported, ${messages.unchanged} here already`;
}

async function listNewest(stage: Stage): Promise<void> {
  const { client, tell } = stage;
  tell("The sessions of its agent worker, newest first:");
  const { sessions } = await client.sessions.listSessions({ agentId: "worker" });
  for (const session of sessions) tell(`  ${describeSession(session)}`);
  stage.check(sessions.length === 6, "worker has six sessions");
  const { sessions: spawned } = await client.sessions.listSessions({ parent: "agent:main:main", pageSize: 200 });
  tell(`${spawned.length} sessions were spawned by agent:main:main.`);
  stage.check(spawned.length === 44, "who spawned whom was kept");
}

function describeSession({ sessionKey, label, messageCount, totalTokens, lastChannel }: Session): string {
  const tokens = totalTokens === undefined ? "tokens unknown" : `${totalTokens} tokens`;
  return [sessionKey, label && `"${label}"`, `${messageCount} messages`, tokens, lastChannel]
    .filter(Boolean)
    .join(", ");
}

async function readToTheBeginning(stage: Stage): Promise<void> {
  const { client, tell } = stage;
  const { pages, newest, oldest } = await readPages(client);
  tell(`${longSession}, read in ${pages} pages back to its beginning:`);
  tell(`  ${describeMessage(oldest)} … ${describeMessage(newest)}`);
  stage.check(
    textOf(oldest) === "#0" && textOf(newest) === "#1999",
    "the history reaches from its first to its last message",
  );
}

async function readPages(client: AgentSessions) {
  let page = await client.sessions.listMessages({ session: longSession, pageSize: 200 });
  const newest = page.messages.at(-1)!;
  let pages = 1;
  while (page.olderPageToken !== "") {
    page = await client.sessions.listMessages({ session: longSession, pageSize: 200, pageToken: page.olderPageToken });
    pages++;
  }
  return { pages, newest, oldest: page.messages[0]! };
}

async function sendIntoIt(stage: Stage): Promise<void> {
  const { client, tell } = stage;
  await stage.startHost({ hostId: "import-story", agents: { main: answer } });
  tell(`Somebody writes into ${longSession}: "How far had we come?"`);
  const sent = await client.sendMessage({ session: longSession, message: "How far had we come?" });
  stage.check(sent.outcome === SendOutcome.COMPLETED, "the send is answered");
  tell(`The agent answers: "${sent.reply}"`);
  const page = await client.sessions.listMessages({ session: longSession, pageSize: 4 });
  tell("The history goes on where it ended:");
  for (const message of page.messages) tell(`  ${describeMessage(message)}`);
  stage.check(
    page.messages.map((message) => Number(message.sequence)).join() === "1999,2000,2001,2002",
    "it goes on without a gap",
  );
  stage.check(textOf(page.messages[3]!) === sent.reply, "the reply is the newest message");
}

/** The imported agent: reads its own history through the session tools, acting as its session. */
async function answer(turn: Turn): Promise<string> {
  const { messages } = await turn.sessions.sessions.listMessages({ session: "current", pageSize: 2 });
  return `Up to ${textOf(messages[0]!)}, in ${Number(messages[0]!.sequence)} messages.`;
}

function describeMessage(message: Message): string {
  return `${message.sequence} ${message.role === Role.USER ? "user" : "agent"}: ${textOf(message)}`;
}

function textOf({ parts }: Message): string {
  return parts.map(({ content }) => (content.case === "text" ? content.value.text : "")).join("");
}
