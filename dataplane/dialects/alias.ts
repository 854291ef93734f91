/**
 * Aliases for tool names and tool call ids that another dialect would refuse (rule 2.8). A pure function of the
 * original, so that a call and its result, a turn and the next one, a whole answer and a stream all agree.
 */
import { createHash } from "node:crypto";

/** What every dialect accepts as a tool name; as the id of a tool call Chat takes less. */
const plain = /^[A-Za-z0-9_-]{1,64}$/;

const digest = (text: string): string => createHash("sha256").update(text, "utf8").digest("hex");

const hashedId = (id: string): string => `call_${digest(id).slice(0, 32)}`;

/** The tool call id itself where every dialect takes its characters, else `call_` and 32 hex digits of its hash. */
export const aliasOfId = (id: string): string => (plain.test(id) ? id : hashedId(id));

/** Most characters of a tool call's id that OpenAI takes in Chat; in Responses it takes 64. */
const CHAT_ID_CHARACTERS = 40;

/** The id of a tool call toward a Chat upstream; it comes back in no answer. */
export const aliasOfChatId = (id: string): string => (id.length > CHAT_ID_CHARACTERS ? hashedId(id) : id);

/** The tool name itself where every dialect takes it, else its readable beginning and 16 hex digits of its hash. */
export const aliasOfName = (name: string): string =>
  plain.test(name)
    ? name
    : `${name.slice(0, 40).replaceAll(/[^A-Za-z0-9_-]/g, "_")}_${digest(name).slice(0, 16)}`;
