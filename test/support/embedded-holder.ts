/**
 * A server process reduced to its database: runs the embedded Postgres of the directory it is given, says `ready` and
 * the url, then inserts rows for ever and says the number of each one acknowledged. Ends well when its input ends.
 */
import { sql } from "kysely";
import { connectDatabase } from "../../src/store/connect.ts";
import { startEmbedded } from "../../src/store/embedded/start-embedded.ts";
import { silentLog } from "./log.ts";

const embedded = await startEmbedded({ dataDir: process.argv[2]!, log: silentLog });
const db = connectDatabase(embedded.url);
await sql`create table if not exists acknowledged (process int, n int)`.execute(db).catch(() => undefined);
process.stdout.write(`ready ${embedded.url}\n`);

let open = true;
process.stdin.on("end", () => {
  open = false;
});
process.stdin.resume();
for (let n = 1; open; n++) {
  await sql`insert into acknowledged values (${process.pid}, ${n})`.execute(db);
  process.stdout.write(`${n}\n`);
}
await db.destroy();
await embedded.stop();
