import pg from "pg";

const { INT8, BYTEA, DATE } = pg.types.builtins;
const INT8_ARRAY = 1016;

/**
 * How columns become values: bigint as bigint, bigint[] as bigint[], bytea as Buffer, a day as its text (a Date would be one
 * of the process's time zone), the rest as pg does it. Only the
 * text format is used: pg 8.23 corrupts bytea and uuid in the binary one.
 */
export const storedTypes = {
  getTypeParser(oid: number, format?: "text" | "binary") {
    if (format === "binary") return pg.types.getTypeParser(oid, "binary");
    if (oid === INT8) return BigInt;
    if (oid === INT8_ARRAY) return toBigints;
    if (oid === BYTEA) return toBytes;
    if (oid === DATE) return String;
    return pg.types.getTypeParser(oid, "text");
  },
} as pg.CustomTypesConfig;

function toBigints(text: string): bigint[] {
  return text === "{}" ? [] : text.slice(1, -1).split(",").map(BigInt);
}

function toBytes(text: string): Buffer {
  return Buffer.from(text.slice(2), "hex");
}
