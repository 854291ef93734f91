/** Both halves of each dialect; a missing one is a compile error. */
import { answerCodecs } from "./answer-codecs.ts";
import type { Codec } from "./codecs.ts";
import type { Dialect } from "./dialect.ts";
import { requestCodecs } from "./request-codecs.ts";

export const codecs: Readonly<Record<Dialect, Codec>> = {
  messages: { ...requestCodecs.messages, ...answerCodecs.messages },
  chat: { ...requestCodecs.chat, ...answerCodecs.chat },
  responses: { ...requestCodecs.responses, ...answerCodecs.responses },
};
