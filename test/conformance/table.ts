/** Every check. */
import { admin } from "./checks/admin.ts";
import { cancellation } from "./checks/cancellation.ts";
import { errors } from "./checks/errors.ts";
import { headers } from "./checks/headers.ts";
import { limits } from "./checks/limits.ts";
import { models } from "./checks/models.ts";
import { oddBytes } from "./checks/odd-bytes.ts";
import { shapes } from "./checks/shapes.ts";
import { slowReaders } from "./checks/slow-readers.ts";
import { streams } from "./checks/streams.ts";
import { tools } from "./checks/tools.ts";
import { upstreamFaults } from "./checks/upstream-faults.ts";
import { usage } from "./checks/usage.ts";

/** In the order in which they run: what tells most for few tokens comes first. */
export const checks = [
  ...shapes,
  ...streams,
  ...errors,
  ...headers,
  ...models,
  ...usage,
  ...tools,
  ...limits,
  ...oddBytes,
  ...cancellation,
  ...slowReaders,
  ...admin,
  // Last: a gateway may avoid an upstream that failed.
  ...upstreamFaults,
];
