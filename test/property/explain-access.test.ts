import fc from "fast-check";
import { expect, test } from "vitest";
import { type AccessVerb, explainAccess, isAllowed } from "../../src/domain/explain-access.ts";
import { evaluateSendPolicy, type SendPolicy, type SendSubject } from "../../src/domain/send-policy.ts";
import { evaluateScope, isInScope, scopeForChange } from "../../src/domain/visibility.ts";
import { anyRules, anySessions } from "../support/random-worlds.ts";

const action = fc.constantFrom("allow" as const, "deny" as const);
const channel = fc.constantFrom("discord", "slack");
const sendPolicy: fc.Arbitrary<SendPolicy> = fc.record({
  rules: fc.array(
    fc.record({
      match: fc.record({ channel, keyPrefix: fc.constantFrom("agent:nova:", "named-1") }, { requiredKeys: [] }),
      action,
    }),
    { maxLength: 3 },
  ),
  default: action,
});
const subject: fc.Arbitrary<Omit<SendSubject, "sessionKey">> = fc.record(
  { channel, chatType: fc.constantFrom("direct", "group"), override: action },
  { requiredKeys: ["channel", "chatType"] },
);
const verbs = fc.constantFrom<AccessVerb>("list", "read", "send", "change");

test("what is explained is what the guard does, for every pair of sessions of any world", () => {
  fc.assert(
    fc.property(anyRules, anySessions, fc.boolean(), verbs, sendPolicy, subject, (rules, sessions, ...rest) => {
      const [sandboxed, verb, policy, fields] = rest;
      for (const requester of sessions) {
        const scope = evaluateScope(rules, requester, sandboxed);
        for (const node of sessions) {
          const target = { ...node, ...fields };
          const inScope = isInScope(verb === "change" ? scopeForChange(scope) : scope, target);
          const maySend = verb !== "send" || evaluateSendPolicy(policy, target).action === "allow";
          const answers = explainAccess({ rules, sendPolicy: policy, requester, sandboxed, verb, target });
          expect(isAllowed(answers)).toBe(inScope && maySend);
        }
      }
    }),
    { seed: 8_500, numRuns: 500 },
  );
});
