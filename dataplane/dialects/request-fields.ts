/**
 * What becomes of every request field toward every dialect, when a request is converted (rule 2.2). Data: it
 * drives `x-gapura-dropped`, `x-gapura-strict` and the page docs/dialects.md; a test holds it against the request
 * types of the official SDKs. Toward its own dialect a request is converted only when it uses a server tool;
 * otherwise it is relayed and nothing of this applies but the refusals.
 * Each dialect has its table in a request-fields.ts of its own; field-rule.ts has their form.
 *
 * - `mapped`: has a counterpart there, or was used up here, by read-request.ts and write-request.ts.
 * - a path: crosses as it is to that field of the other dialect, beside the hub (rule 2.1).
 * - `dropped`: no counterpart; named in the header, 400 under strict.
 * - `refused`: 400, because leaving it out would change what the client gets.
 */
import { chatFields } from "./chat/request-fields.ts";
import type { Dialect } from "./dialect.ts";
import type { FieldRule } from "./field-rule.ts";
import { messagesFields } from "./messages/request-fields.ts";
import { responsesFields } from "./responses/request-fields.ts";

/** Every known request field of a dialect's clients. */
export const fields: Readonly<Record<Dialect, readonly FieldRule[]>> = {
  messages: messagesFields,
  chat: chatFields,
  responses: responsesFields,
};
