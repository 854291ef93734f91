/** What request codecs are given in tests: a context whose seals change nothing, and a model that takes everything. */
import type { CodecContext, Target } from "../../dataplane/dialects/codecs.ts";

export const openContext: CodecContext = {
  newId: (prefix) => `${prefix}_new`,
  createdAt: 1_790_000_000,
  sealer: { seal: (plain) => plain, open: (sealed) => sealed },
  model: "model",
};
export const openTarget: Target = {
  upstreamModel: "model",
  maxOutputTokens: 100_000,
  samplingParameters: true,
  encryptedReasoning: true,
  ownAccount: false,
  thinking: true,
  imageInput: true,
  pdfInput: true,
};
