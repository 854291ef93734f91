/** The request halves of the three dialects. */
import * as chatReader from "./chat/read-request.ts";
import * as chatWriter from "./chat/write-request.ts";
import type { RequestCodec } from "./codecs.ts";
import type { Dialect } from "./dialect.ts";
import * as messagesReader from "./messages/read-request.ts";
import * as messagesWriter from "./messages/write-request.ts";
import * as responsesReader from "./responses/read-request.ts";
import * as responsesWriter from "./responses/write-request.ts";

export const requestCodecs: Readonly<Record<Dialect, RequestCodec>> = {
  messages: {
    readRequest: messagesReader.readMessagesRequest,
    writeRequest: messagesWriter.writeMessagesRequest,
  },
  chat: { readRequest: chatReader.readChatRequest, writeRequest: chatWriter.writeChatRequest },
  responses: {
    readRequest: responsesReader.readResponsesRequest,
    writeRequest: responsesWriter.writeResponsesRequest,
  },
};
