import { validate, version } from "uuid";
import { expect, test } from "vitest";
import { randomIds } from "../../src/app/ids.ts";

test("ids are UUIDv7 in the order they were drawn", () => {
  const ids = randomIds();
  const drawn = Array.from({ length: 1_000 }, () => ids.uuid());
  expect(drawn.every((id) => validate(id) && version(id) === 7)).toBe(true);
  expect(drawn.toSorted()).toEqual(drawn);
  expect(new Set(drawn).size).toBe(1_000);
});

test("secrets are 256 bits, base64url", () => {
  const ids = randomIds();
  expect(ids.secret()).toMatch(/^[A-Za-z0-9_-]{43}$/);
  expect(ids.secret()).not.toBe(ids.secret());
});
