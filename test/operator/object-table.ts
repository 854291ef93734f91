/**
 * Good and bad objects, and who has to judge them: the API server (schema and CEL) or the compiler. The unit tests
 * put every row through the compiler, the operator tests put every row to a real kube-apiserver.
 */
import { routeRows } from "./rows/model-route.ts";
import { organizationRows } from "./rows/organization.ts";
import { priceRows } from "./rows/price-table.ts";
import type { Row } from "./rows/row.ts";
import { policyRows } from "./rows/tool-policy.ts";

export const objectTable: readonly Row[] = [...routeRows, ...policyRows, ...priceRows, ...organizationRows];
