/** The three dialects. */
import type { Dialect } from "../../../dataplane/dialects/dialect.ts";
import { chat } from "./chat.ts";
import type { Form } from "./form.ts";
import { messages } from "./messages.ts";
import { responses } from "./responses.ts";

export const forms: Readonly<Record<Dialect, Form>> = { messages, chat, responses };
