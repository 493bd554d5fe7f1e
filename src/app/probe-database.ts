import { pingDatabase } from "../store/connect.ts";
import type { App } from "./context.ts";

/** Whether the database answers a question that costs it nothing. Never fails. */
export async function probeDatabase(app: Pick<App, "db">): Promise<boolean> {
  return pingDatabase(app.db).then(
    () => true,
    () => false,
  );
}
