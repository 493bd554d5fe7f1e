import { writeFileSync } from "node:fs";
import type { DescMethod } from "@bufbuild/protobuf";
import type { Role } from "../../src/domain/principal.ts";
import {
  evaluateScope,
  isInScope,
  type Scope,
  scopeForChange,
  type Visibility,
  type VisibilityRules,
} from "../../src/domain/visibility.ts";
import { type Access, accessTable } from "../../src/rpc/access.ts";
import { readDescriptors } from "../../src/rpc/reflection.ts";
import { services } from "../../src/rpc/routes.ts";
import { novaAndOtter, type Relation, relations, requester } from "../support/spawn-tree.ts";

/*
 * docs/access-matrix.md, made from the access table and the visibility rule themselves: `npm run docs:matrix` writes it.
 */

export const matrixFile = new URL("../../docs/access-matrix.md", import.meta.url);

const head = `# Who may do what

Written by \`npm run docs:matrix\` from the access table (\`src/rpc/access.ts\`) and the visibility rule (\`src/domain/visibility.ts\`); do not edit.

**Who calls.** An *operator* is a person or program that runs this service. A *host* executes agents; its token names the agents.
A *connector* brings messages in from a chat channel. A *session* is an agent at work: its calls carry the token of the run in progress,
and the service takes the caller from that token, never from what the call says.

**What a session sees** is set by \`tools.sessions.visibility\`: the four columns under "session". The last column is a session whose agent runs in a
sandbox, under any of the four but \`self\`, as long as \`agents.defaults.sandbox.sessionToolsVisibility\` is \`"spawned"\`.

| Word | Means |
|---|---|
| all | Every session and run |
| own | The session that calls, and what its key meant before a reset |
| spawned | Sessions that it spawned, before a reset too, that these spawned, and so on, whatever agent runs them |
| own agent | Every session of the same agent: other people's chats with it too |
| allowed agents | Every session of the agents that \`tools.agentToAgent\` lets this one reach (off by default) |
| sent | Runs that it started in other sessions by sending to them, and the files these gave back |
| its agents | Sessions and runs of the agents its token names |
| its channels | Chats and deliveries on the channels and accounts its token names |
| held | Runs or deliveries that it has claimed and not ended, shown by the lease token of each |
| yes / – | For everyone of that role / for no one of it |

**What a session may do at all** is set by the tool policies of its agent (\`agents.list[].tools\`) and of sub-agents (\`tools.subagents.tools\`). A session
reaches an RPC by the tool named in its row; when that one is denied, the call is refused before it is looked at (\`TOOL_DENIED\`). Sub-agents have none of
these tools unless \`tools.subagents.tools.allow\` names them.

What a caller may not see looks to it as if it were not there: same answer, byte for byte. Sessions called \`global\` or \`unknown\`, which an import may
bring along, are there for operators alone. An operator that acts as a session (header \`agentsessions-act-as\`) has that session's rights.
Changing the send policy of a session with UpdateSession is for operators. Health checks and reflection are open to everyone.

`;

const visibilities: readonly Visibility[] = ["self", "tree", "agent", "all"];

export function renderMatrix(): string {
  return head + services.map(({ typeName }) => renderService(typeName)).join("\n");
}

function renderService(typeName: string): string {
  const service = readDescriptors().getService(typeName)!;
  const rows = service.methods.map((method) => {
    const access = accessTable.get(`${typeName}/${method.name}`)!;
    const about = firstSentence(commentOf(method));
    const cells = cellsOf(access, isAboutRuns(method));
    return `| ${[method.name, about, ...cells, access.tool ?? "–"].join(" | ")} |`;
  });
  const columns = ["RPC", "What it does", "operator", "host", "connector"];
  const heads = [
    ...columns,
    ...visibilities.map((each) => `session: ${each}`),
    "session, sandboxed",
    "tool of sessions",
  ];
  return [
    `## ${service.name}`,
    "",
    `| ${heads.join(" | ")} |`,
    `|${heads.map(() => "---|").join("")}`,
    ...rows,
    "",
  ].join("\n");
}

/** Whether what a session sent is in its reach, wherever it went. */
function isAboutRuns({ name, parent }: DescMethod): boolean {
  return name === "ReadAttachment" || (parent.name === "RunService" && name !== "GetUsage");
}

function cellsOf(access: Access, isRun: boolean): string[] {
  const forRole = (role: Role, words: string) => (access.roles.includes(role) ? words : "–");
  const sessionCell = (visibility: Visibility, sandboxed: boolean) =>
    forRole("session", access.verb === "open" ? "yes" : describe(scopeOf(access, visibility, sandboxed), isRun));
  return [
    forRole("operator", access.verb === "open" ? "yes" : access.verb === "lease" ? "held" : "all"),
    forRole("host", access.verb === "open" ? "yes" : access.verb === "lease" ? "held" : "its agents"),
    forRole("connector", access.verb === "open" ? "yes" : access.verb === "lease" ? "held" : "its channels"),
    ...visibilities.map((visibility) => sessionCell(visibility, false)),
    sandboxedCell(access, sessionCell),
  ];
}

/** Under the clamp all settings but self come to the same; the matrix is wrong when they do not. */
function sandboxedCell({ verb }: Access, cell: (visibility: Visibility, sandboxed: boolean) => string): string {
  const cells = new Set(visibilities.slice(1).map((visibility) => cell(visibility, true)));
  if (cells.size !== 1) throw new Error(`the sandbox column has several answers for ${verb}: ${[...cells].join("; ")}`);
  return [...cells][0]!;
}

function scopeOf({ verb }: Access, visibility: Visibility, sandboxed: boolean): Scope {
  const rules: VisibilityRules = { visibility, agentToAgent: novaAndOtter, sandboxVisibility: "spawned" };
  const scope = evaluateScope(rules, requester, sandboxed);
  return verb === "change" ? scopeForChange(scope) : scope;
}

/** Words of the legend, each with the relations that must all be in reach for it to be said. */
const words: readonly (readonly [string, readonly Relation[]])[] = [
  ["own", ["own", "earlier incarnation"]],
  ["own agent", ["sibling", "parent", "same agent, other tree", "its key before a deletion"]],
  ["allowed agents", ["reachable agent"]],
  ["spawned", ["child", "grandchild", "child run by another agent", "child of an earlier incarnation"]],
];

function describe(scope: Scope, isRun: boolean): string {
  const inReach = (relation: Relation) => isInScope(scope, relations[relation]);
  if (inReach("unlisted agent")) throw new Error("the matrix has no word for agents that are not allowed");
  const said = words.filter(([word, needed]) => {
    const reached = needed.filter(inReach);
    if (reached.length > 0 && reached.length < needed.length) throw new Error(`"${word}" is in reach in part`);
    return reached.length > 0;
  });
  const names = said.map(([word]) => word).filter((word, _, all) => word !== "own" || !all.includes("own agent"));
  return [...names, ...(isRun ? ["sent"] : [])].join(", ");
}

/** What the contract says above an RPC: at path service (6), its place, method (2), its place. */
function commentOf(method: DescMethod): string {
  const { file } = method.parent;
  const path = [6, file.services.indexOf(method.parent), 2, method.parent.methods.indexOf(method)].join();
  const places = file.proto.sourceCodeInfo?.location ?? [];
  return places.find((place) => place.path.join() === path)?.leadingComments ?? "";
}

function firstSentence(comment: string): string {
  const text = comment.replace(/\s+/g, " ").trim();
  return (/^.*?[.:](?= |$)/.exec(text)?.[0] ?? text).replace(/[.:]$/, "").replace(/ \((?:[SC]\d[^)]*)\)/g, "");
}

if (import.meta.main) writeFileSync(matrixFile, renderMatrix());
