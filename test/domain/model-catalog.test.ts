import { expect, test } from "vitest";
import { canonicalModel, findLevelRefusal, thinkingLevels, unknownModel } from "../../src/domain/model-catalog.ts";

const catalog = {
  "acme/large": { alias: "deep", thinking: ["low", "high"] },
  "acme/small": { alias: "fast" },
  toString: {},
};

test("C46: a model goes by its name or its alias, in their exact spelling", () => {
  expect(canonicalModel(catalog, "acme/large")).toBe("acme/large");
  expect(canonicalModel(catalog, "fast")).toBe("acme/small");
  for (const unknown of ["nope/none", "FAST", "acme/Large", "", "constructor", "__proto__"]) {
    expect(canonicalModel(catalog, unknown)).toBeUndefined();
  }
  expect(canonicalModel(catalog, "toString")).toBe("toString");
  expect(unknownModel(catalog, "nope/none", "model")).toEqual({
    kind: "model_invalid",
    field: "model",
    model: "nope/none",
    models: ["acme/large", "acme/small", "toString"],
  });
});

test("without a catalog every name is a model", () => {
  expect(canonicalModel({}, "nope/none")).toBe("nope/none");
  expect(findLevelRefusal({}, "high", "nope/none")).toBeUndefined();
});

test("S6.1: a thinking level is one of seven words, and one that the model has", () => {
  for (const level of thinkingLevels) expect(findLevelRefusal(catalog, level, "acme/small")).toBeUndefined();
  expect(findLevelRefusal(catalog, undefined, "acme/large")).toBeUndefined();
  expect(findLevelRefusal(catalog, "high", undefined)).toBeUndefined();
  expect(findLevelRefusal(catalog, "high", "acme/large")).toBeUndefined();
  expect(findLevelRefusal(catalog, "max", "acme/large")).toEqual({
    kind: "thinking_level_invalid",
    level: "max",
    levels: thinkingLevels,
  });
  expect(findLevelRefusal(catalog, "xhigh", "acme/large")).toEqual({
    kind: "thinking_level_invalid",
    level: "xhigh",
    levels: ["low", "high"],
    model: "acme/large",
  });
});
