/** The answer codec of each dialect; a missing one is a compile error. */
import type { AnswerCodec } from "./codecs.ts";
import type { Dialect } from "./dialect.ts";
import { readChatResponse, writtenInChat } from "./chat/read-response.ts";
import { ChatStreamReader } from "./chat/read-stream.ts";
import { writeChatResponse } from "./chat/write-response.ts";
import { ChatStreamWriter } from "./chat/write-stream.ts";
import { readMessagesResponse, weighMessages } from "./messages/read-response.ts";
import { MessagesStreamReader } from "./messages/read-stream.ts";
import { writeMessagesResponse } from "./messages/write-response.ts";
import { MessagesStreamWriter } from "./messages/write-stream.ts";
import { writtenText } from "./output-estimate.ts";
import { CompactionWriter } from "./responses/compaction.ts";
import { readResponsesResponse, weighResponses } from "./responses/read-response.ts";
import { ResponsesStreamReader } from "./responses/read-stream.ts";
import { writeResponsesResponse } from "./responses/write-response.ts";
import { ResponsesStreamWriter } from "./responses/write-stream.ts";

export const answerCodecs: Record<Dialect, AnswerCodec> = {
  messages: {
    readResponse: readMessagesResponse,
    readStream: (context) => new MessagesStreamReader(context),
    written: (body) => writtenText(weighMessages(body)),
    writeResponse: writeMessagesResponse,
    writeStream: (carry, context) => new MessagesStreamWriter(carry, context),
  },
  chat: {
    readResponse: readChatResponse,
    readStream: (context) => new ChatStreamReader(context),
    written: writtenInChat,
    writeResponse: writeChatResponse,
    writeStream: (carry, context, annotate) => new ChatStreamWriter(carry, context, annotate),
  },
  responses: {
    readResponse: readResponsesResponse,
    readStream: (context) => new ResponsesStreamReader(context),
    written: (body) => writtenText(weighResponses(body)),
    writeResponse: writeResponsesResponse,
    writeStream: (carry, context, annotate) =>
      carry.compacts
        ? new CompactionWriter(carry, context)
        : new ResponsesStreamWriter(carry, context, annotate),
  },
};
