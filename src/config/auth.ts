import { z } from "zod";
import { AGENT_PATTERN } from "../domain/agent-access.ts";
import { findGrantProblem, type Grant, grantedRoles } from "../domain/grant.ts";
import { flag, oneOf, section, text, textLike, wholeNumber } from "./rules.ts";

/** How callers prove who they are, beyond API tokens and run tokens, which need no configuration. */

const names = (expected: string) => z.array(text(expected), { error: "a list in brackets" });

/** What a JWT or a certificate makes its holder. */
const grantShape = {
  role: oneOf(grantedRoles),
  agents: z
    .array(textLike(AGENT_PATTERN, 'an agent id, or a pattern of ids such as "team-*" or "*"'), {
      error: "a list in brackets",
    })
    .exactOptional(),
  channels: names('a channel, or "*" for any').exactOptional(),
  accounts: names('an account, or "*" for any').exactOptional(),
};

function refuseBadGrant(grant: Grant, context: z.core.$RefinementCtx): void {
  const problem = findGrantProblem(grant);
  if (problem === undefined) return;
  const { field, expected } = problem;
  context.addIssue({ code: "custom", path: [field], input: grant[field], message: expected });
}

const certificateNames = ["commonName", "sanUri", "sanDns"] as const;
const namePattern = () => text("a name in which * stands for any characters").exactOptional();

const certificateSchema = section({
  commonName: namePattern(),
  sanUri: namePattern(),
  sanDns: namePattern(),
  ...grantShape,
}).superRefine((rule, context) => {
  refuseBadGrant(rule, context);
  if (certificateNames.filter((name) => rule[name] !== undefined).length === 1) return;
  const message = `exactly one of ${certificateNames.join(", ")}`;
  context.addIssue({ code: "custom", path: [], input: rule, message });
});

const keysUrl = "an https:// address; http:// for this machine alone";

const jwtSchema = section({
  jwksUri: z.string({ error: keysUrl }).refine(isSafeUrl, { error: keysUrl }).exactOptional(),
  jwksFile: text("a file with a JSON Web Key Set").exactOptional(),
  issuer: text("the claim iss of accepted tokens"),
  audience: text("a value of the claim aud of accepted tokens"),
  roleClaim: text("the name of a claim").default("role"),
  roles: z
    .record(text("a value of the role claim"), section(grantShape).superRefine(refuseBadGrant), {
      error: "an object in braces: value of the role claim → role",
    })
    .refine((roles) => Object.keys(roles).length > 0, { error: "at least one value of the role claim" }),
  nameClaim: text("the name of a claim").default("sub"),
  clockToleranceSeconds: wholeNumber(0, 300).default(30),
}).refine((jwt) => (jwt.jwksUri === undefined) !== (jwt.jwksFile === undefined), {
  error: "exactly one of jwksUri, jwksFile",
});

/** server.auth */
export const authSchema = section({
  required: flag().default(false),
  jwt: jwtSchema.exactOptional(),
  certificates: z.array(certificateSchema, { error: "a list in brackets" }).exactOptional(),
});

/** Keys that others could replace on their way would let them in. */
function isSafeUrl(value: string): boolean {
  if (!URL.canParse(value)) return false;
  const { protocol, hostname, username, password } = new URL(value);
  if (username !== "" || password !== "") return false;
  return protocol === "https:" || (protocol === "http:" && /^(localhost|127(\.\d+){3}|\[::1\])$/.test(hostname));
}
