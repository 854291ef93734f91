/** The official SDKs as clients of one address; what fails is seen, not asked again. */
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

export const sdkClients = (url: string, apiKey: string) => ({
  anthropic: new Anthropic({ baseURL: url, apiKey, maxRetries: 0 }),
  openai: new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0 }),
});
