import { type Expression, sql } from "kysely";
import type { Db } from "../../src/store/database.ts";

interface Plan {
  "Node Type": string;
  "Relation Name"?: string;
  "Index Name"?: string;
  "Actual Rows": number;
  "Actual Loops": number;
  "Rows Removed by Filter"?: number;
  Plans?: Plan[];
}

/** What a statement read: the indexes it used, the rows it touched in the table, and whether it walked it from end to end. */
export interface Reads {
  readonly indexes: string[];
  readonly touched: number;
  readonly sequential: boolean;
}

/** Runs a statement, takes back what it wrote, and says what it read of `table`. */
export async function explainWrite(db: Db, statement: Expression<unknown>, table: string): Promise<Reads> {
  const indexes = new Set<string>();
  let touched = 0;
  let sequential = false;
  const walk = (plan: Plan): void => {
    if (plan["Index Name"]) indexes.add(plan["Index Name"]);
    if (plan["Relation Name"] === table) {
      sequential ||= plan["Node Type"] === "Seq Scan";
      touched += (plan["Actual Rows"] + (plan["Rows Removed by Filter"] ?? 0)) * plan["Actual Loops"];
    }
    plan.Plans?.forEach(walk);
  };
  const rollback = new Error("rollback");
  await db
    .transaction()
    .execute(async (tx) => {
      type Answer = { "QUERY PLAN": [{ Plan: Plan }] };
      const { rows } = await sql<Answer>`explain (analyze, format json) ${statement}`.execute(tx);
      walk(rows[0]!["QUERY PLAN"][0].Plan);
      throw rollback;
    })
    .catch((error: unknown) => {
      if (error !== rollback) throw error;
    });
  return { indexes: [...indexes], touched, sequential };
}
