import fc from "fast-check";
import { test } from "vitest";
import { matchesSomePattern } from "../../src/domain/agent-access.ts";
import {
  effectiveToolPolicy,
  findToolDenial,
  mayUseTool,
  sessionTools,
  type ToolRules,
} from "../../src/domain/tool-policy.ts";

const settings = { seed: 7, numRuns: 500 };
const tool = fc.oneof(
  fc.constantFrom(...sessionTools),
  fc.stringMatching(/^[ab_]{1,4}$/),
  fc.constantFrom("read", "web_get"),
);
const pattern = fc.oneof(tool, fc.stringMatching(/^[ab*_]{1,4}$/), fc.constantFrom("*", "sessions_*", "web_*"));
const list = fc.array(pattern, { maxLength: 4 });
const rules = fc.record({ allow: list, deny: list }, { requiredKeys: [] });

const passes = ({ allow, deny = [] }: ToolRules, name: string) =>
  !matchesSomePattern(name, deny) && (allow === undefined || matchesSomePattern(name, allow));

test("S6.7: one policy is never wider than the rules it is made of", () => {
  fc.assert(
    fc.property(rules, rules, tool, (agent, subagents, name) => {
      if (!mayUseTool(effectiveToolPolicy({ agent, subagents }), name)) return;
      return passes(agent, name) && passes(subagents, name);
    }),
    settings,
  );
});

test("for an agent alone it is exactly its rules", () => {
  fc.assert(
    fc.property(rules, tool, (agent, name) => mayUseTool(effectiveToolPolicy({ agent }), name) === passes(agent, name)),
    settings,
  );
});

test("C130: what the service refuses and what the host is told are the same for every session tool", () => {
  fc.assert(
    fc.property(
      rules,
      fc.option(rules, { nil: undefined }),
      fc.constantFrom(...sessionTools),
      (agent, subagents, name) => {
        const set = { agent, ...(subagents && { subagents }) };
        return (findToolDenial(set, name) === undefined) === mayUseTool(effectiveToolPolicy(set), name);
      },
    ),
    settings,
  );
});
