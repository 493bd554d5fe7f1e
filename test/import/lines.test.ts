import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { jsonMember } from "../../src/import/json-member.ts";
import { readLines } from "../../src/import/lines.ts";

const seed = { seed: 7, numRuns: 200 };

async function* inPieces(bytes: Buffer, size: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

async function collect(text: string | Buffer, size = 3, limit?: number) {
  const lines: string[] = [];
  for await (const line of readLines(inPieces(Buffer.from(text), size), limit)) {
    lines.push(`${line.number}${line.ended ? "" : "…"}${line.tooLong ? " too long" : ` ${line.bytes.toString()}`}`);
  }
  return lines;
}

describe("lines", () => {
  it("are cut at line feeds wherever chunks end", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.stringMatching(/^[a-zé\u{1f600}]{0,9}$/u)),
        fc.integer({ min: 1, max: 20 }),
        async (lines, size) => {
          const text = lines.map((line) => `${line}\n`).join("");
          expect(await collect(text, size)).toEqual(lines.map((line, index) => `${index + 1} ${line}`));
        },
      ),
      seed,
    );
  });

  it("lose their return, and the file its byte order mark", async () => {
    expect(await collect("\ufeffa\r\nb\r\n")).toEqual(["1 a", "2 b"]);
  });

  it("tell whether the last one was ended", async () => {
    expect(await collect("a\nb")).toEqual(["1 a", "2… b"]);
    expect(await collect("")).toEqual([]);
  });

  it("that are too long are passed over and counted", async () => {
    expect(await collect(`${"x".repeat(50)}\nb\n`, 7, 20)).toEqual(["1 too long", "2 b"]);
  });
});

describe("a member of a JSON object", () => {
  it("is cut out byte for byte, whatever stands around it", () => {
    const spaces = fc.stringMatching(/^[ \t]{0,3}$/);
    fc.assert(
      fc.property(fc.jsonValue(), fc.dictionary(fc.string(), fc.jsonValue()), spaces, (value, others, space) => {
        const { message: _, ...before } = others;
        const text = JSON.stringify(value, undefined, 1);
        const members = Object.entries(before).map(
          ([name, each]) => `${JSON.stringify(name)}${space}:${JSON.stringify(each)}`,
        );
        const json = `{${[...members, `"message":${space}${text}${space}`].join(`${space},`)}}`;
        expect(Buffer.from(jsonMember(Buffer.from(json), "message")!).toString()).toBe(text);
      }),
      seed,
    );
  });

  it("is the last of its name, as JSON.parse has it, in any spelling", () => {
    expect(member('{"message":1,"\\u006dessage":2.50}')).toBe("2.50");
    expect(member('{"a":"\\"message\\":3","b":["message",{"message":4}]}')).toBeUndefined();
    expect(member("[1]")).toBeUndefined();
    expect(member("{}")).toBeUndefined();
  });
});

function member(json: string): string | undefined {
  const found = jsonMember(Buffer.from(json), "message");
  return found === undefined ? undefined : Buffer.from(found).toString();
}
