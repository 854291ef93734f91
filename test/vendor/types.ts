/** What is judged of the vendors' own types; `schemas.ts` turns each of these into a JSON schema. */
import type * as Anthropic from "@anthropic-ai/sdk/resources/index.mjs";
import type { ErrorResponse } from "@anthropic-ai/sdk/resources/shared.mjs";
import type * as Chat from "openai/resources/chat/completions/completions.mjs";
import type * as Responses from "openai/resources/responses/responses.mjs";
import type { Model } from "openai/resources/models.mjs";
import type { ErrorObject } from "openai/resources/shared.mjs";

export type MessagesAnswer = Anthropic.Message;
export type MessagesEvent = Anthropic.RawMessageStreamEvent;
export type MessagesRequest = Anthropic.MessageCreateParams;
export type MessagesModel = Anthropic.ModelInfo;

export type MessagesError = ErrorResponse;
export type OpenaiError = { error: ErrorObject };
export type OpenaiModel = Model;

export type ChatAnswer = Chat.ChatCompletion;
export type ChatEvent = Chat.ChatCompletionChunk;
export type ChatRequest = Chat.ChatCompletionCreateParams;

export type ResponsesAnswer = Responses.Response;
export type ResponsesEvent = Responses.ResponseStreamEvent;
export type ResponsesRequest = Responses.ResponseCreateParams;
