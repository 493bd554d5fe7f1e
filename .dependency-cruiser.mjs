/**
 * The floors of ARCHITECTURE.md. Every rule's comment says what to do instead.
 * Run with `npm run lint:floors`.
 */
const floor = (name, from, to, comment) => ({ name, severity: "error", comment, from, to });
const outside = (...allowed) => ({ path: "^(src|gen|node_modules|test|bench)/", pathNot: allowed });

export default {
  forbidden: [
    floor(
      "domain-is-pure",
      { path: "^src/domain/" },
      { pathNot: "^src/domain/" },
      "Rules know nothing of the world, not even node:*. Pass what the rule needs as an argument from app/.",
    ),
    floor(
      "config-is-a-side-room",
      { path: "^src/config/" },
      outside("^src/(config|domain)/", "^node_modules/(zod|json5)/"),
      "config/ describes settings. Read them from app/ or server.ts instead of reaching out from here.",
    ),
    floor(
      "store-is-sql-alone",
      { path: "^src/store/" },
      outside("^src/(store|domain)/", "^node_modules/(kysely|pg)/"),
      "store/ turns rows into domain types and nothing else. Decide in domain/, orchestrate in app/.",
    ),
    floor(
      "app-knows-no-wire-and-no-sql",
      { path: "^src/app/" },
      outside("^src/(app|domain|store)/", "^src/config/schema\\.ts$", "^node_modules/uuid/"),
      "A verb works on domain types: convert in rpc/convert, query in store/.",
    ),
    floor(
      "doors-do-not-query",
      { path: "^src/rpc/" },
      outside("^src/(rpc|app|domain|config)/", "^gen/typescript/", "^node_modules/(@bufbuild|@connectrpc|jose)/"),
      "A door converts, calls one verb of app/, converts back. Put the query in store/ and the order of things in app/.",
    ),
    floor(
      "loops-are-doors-too",
      { path: "^src/loops/" },
      outside("^src/(loops|app|domain)/"),
      "The clock's door: call one verb of app/ per tick.",
    ),
    floor(
      "import-reads-then-calls",
      { path: "^src/import/" },
      outside("^src/(import|app|domain)/", "^node_modules/(json5|uuid)/"),
      "import/ parses foreign stores and hands each session to app/import-session.ts.",
    ),
    floor(
      "hosts-live-outside",
      { path: "^src/host/" },
      outside("^src/(host|client)/", "^gen/typescript/", "^node_modules/(@bufbuild|@connectrpc)/"),
      "Agent hosts run in other processes: they see the contract alone, never the server's code.",
    ),
    floor(
      "clients-live-outside",
      { path: "^src/client/" },
      outside("^src/client/", "^gen/typescript/", "^node_modules/(@bufbuild|@connectrpc)/"),
      "Clients see the contract alone, never the server's code.",
    ),
    floor(
      "kysely-stays-in-store",
      { path: "^src/", pathNot: "^src/store/" },
      { path: "^node_modules/(kysely|pg)/" },
      "Write a function in store/ and call that.",
    ),
    floor(
      "only-doors-read-the-contract",
      { path: "^src/", pathNot: "^src/(rpc|host|client|cli|server\\.ts)" },
      { path: "^gen/" },
      "Inner floors use domain types: the contract may change shape without them.",
    ),
    floor(
      "nobody-imports-the-top",
      { path: "^src/", pathNot: "^src/(cli/|main\\.ts|server\\.ts)" },
      { path: "^src/(cli/|main\\.ts|server\\.ts)" },
      "main.ts, server.ts and cli/ wire everything; move what you need to a lower floor.",
    ),
    floor("no-cycles", {}, { circular: true }, "Two files that need each other are one room: merge them, or move the shared part down."),
    floor("imports-resolve", {}, { couldNotResolve: true }, "The import names nothing: fix its path."),
  ],
  options: {
    tsPreCompilationDeps: true,
    parser: "swc",
    doNotFollow: { path: "node_modules|^gen/" },
    enhancedResolveOptions: {
      extensions: [".ts", ".js"],
      exportsFields: ["exports"],
      conditionNames: ["import", "node", "default"],
    },
  },
};
