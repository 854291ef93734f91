/** Tool names as the client knows them: aliases and flattened namespaces undone (rule 2.8, dialects.md §H3). */
import type { Carry } from "./codecs.ts";

interface ClientTool {
  readonly name: string;
  readonly namespace: string | null;
}

export function clientTool(name: string, carry: Carry): ClientTool {
  const flat = carry.aliases.get(name) ?? name;
  const member = carry.namespaces.get(name) ?? carry.namespaces.get(flat);
  return member === undefined
    ? { name: flat, namespace: null }
    : { name: member.name, namespace: member.namespace };
}
