import type { AuthConfig } from "../config/schema.ts";
import { matchesAgentPattern } from "../domain/agent-access.ts";
import { CALLER_NAME, type GrantedPrincipal, toPrincipal } from "../domain/grant.ts";
import type { ClientCertificate } from "./peer.ts";

/**
 * Who a client certificate speaks for. Without server.auth.certificates every accepted one is an operator, named by its
 * common name; with that list the first entry that fits decides, and a certificate that none fits is nobody's.
 */
export function findCertificatePrincipal(
  rules: AuthConfig["certificates"],
  certificate: ClientCertificate,
): GrantedPrincipal | undefined {
  const { commonName, uris, dnsNames } = certificate;
  if (rules === undefined) {
    const name = commonName ?? uris[0] ?? dnsNames[0];
    return isName(name) ? { role: "operator", name } : undefined;
  }
  const named = [
    { kind: "commonName", names: commonName === undefined ? [] : [commonName] },
    { kind: "sanUri", names: uris },
    { kind: "sanDns", names: dnsNames },
  ] as const;
  for (const rule of rules) {
    for (const { kind, names } of named) {
      const name = names.find((each) => rule[kind] !== undefined && matchesAgentPattern(each, rule[kind]));
      if (isName(name)) return toPrincipal(name, rule);
    }
  }
  return undefined;
}

function isName(name: string | undefined): name is string {
  return name !== undefined && CALLER_NAME.test(name);
}
