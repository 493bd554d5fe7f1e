import type { ConnectorPrincipal, HostPrincipal, OperatorPrincipal } from "./principal.ts";

/** What a lasting credential makes its holder: an API token, a claim of a JWT, a client certificate. */
export interface Grant {
  readonly role: GrantedRole;
  /** Agent patterns a host serves. */
  readonly agents?: readonly string[] | undefined;
  /** Channels a connector carries, "*" for any. */
  readonly channels?: readonly string[] | undefined;
  /** Accounts on these channels, "*" for any; without the list any. */
  readonly accounts?: readonly string[] | undefined;
}

export type GrantedPrincipal = OperatorPrincipal | HostPrincipal | ConnectorPrincipal;
export type GrantedRole = GrantedPrincipal["role"];

export const grantedRoles = ["operator", "host", "connector"] as const satisfies readonly GrantedRole[];

/** Names of callers, as logs and the audit log show them. */
export const CALLER_NAME = /^(?! )[^\p{C}]{1,200}(?<! )$/u;

export interface GrantProblem {
  readonly field: "agents" | "channels" | "accounts";
  readonly expected: string;
}

/** What is wrong with a grant: a list its role needs, or one that says nothing for its role. */
export function findGrantProblem(grant: Grant): GrantProblem | undefined {
  const { role } = grant;
  const needed = role === "host" ? "agents" : role === "connector" ? "channels" : undefined;
  if (needed !== undefined && !grant[needed]?.length) {
    return { field: needed, expected: `the ${needed} of the ${role}; ["*"] for any` };
  }
  const spare = (["agents", "channels", "accounts"] as const).find(
    (field) => grant[field] !== undefined && field !== needed && !(role === "connector" && field === "accounts"),
  );
  return spare && { field: spare, expected: `nothing: the role "${role}" is not limited by ${spare}` };
}

/** The caller a grant makes. The grant has no problem. */
export function toPrincipal(
  name: string,
  { role, agents = [], channels = [], accounts = ["*"] }: Grant,
): GrantedPrincipal {
  switch (role) {
    case "operator":
      return { role, name };
    case "host":
      return { role, name, agents };
    case "connector":
      return { role, name, channels, accounts };
  }
}
