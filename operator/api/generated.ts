/** Every committed file that is made from the schemas, by path; `hack/generate.ts` writes them, a test compares. */
import { stringify } from "yaml";
import { crdFileName, customResourceDefinition, jsonSchemaFileName, manifestJsonSchema } from "./crd.ts";
import { configurationPage } from "./docs.ts";
import { KINDS } from "./kinds.ts";

const header = "# Written by `npm run generate` from operator/api; edit the schemas, not this file.\n";

/** `examples`: a whole manifest for each kind, for the configuration page. */
export function generatedFiles(examples: Readonly<Record<string, string>>): Map<string, string> {
  const files = new Map<string, string>();
  for (const kind of KINDS) {
    const definition = stringify(customResourceDefinition(kind), {
      lineWidth: 0,
      aliasDuplicateObjects: false,
    });
    files.set(`crds/${crdFileName(kind)}`, `${header}${definition}`);
    files.set(
      `crds/schemas/${jsonSchemaFileName(kind)}`,
      `${JSON.stringify(manifestJsonSchema(kind), null, 2)}\n`,
    );
  }
  files.set("docs/configuration.md", configurationPage(examples));
  return files;
}
