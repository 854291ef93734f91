/** Resources that clients know from elsewhere and that are not here: their 404 says so (rules 1.4, 1.16). */
const known: readonly (readonly [RegExp, string])[] = [
  [/^\/v1\/skills(\/|$)/, "Skills are planned and not available yet."],
  [/^\/v1\/embeddings$/, "Embeddings are not offered by this service."],
  [
    /^\/v1\/(completions|complete)$/,
    "Text completions are not offered by this service; use chat completions or messages.",
  ],
  [/^\/v1\/images(\/|$)/, "Image generation is not offered by this service."],
  [/^\/v1\/videos(\/|$)/, "Video generation is not offered by this service."],
  [/^\/v1\/audio(\/|$)/, "Audio is not offered by this service."],
  [/^\/v1\/moderations$/, "Moderations are not offered by this service."],
  [/^\/v1\/realtime(\/|$)/, "Realtime sessions are not offered by this service."],
  [/^\/v1\/(fine_tuning|fine-tunes)(\/|$)/, "Fine-tuning is not offered by this service."],
  [
    /^\/v1\/(assistants|threads|vector_stores|evals|containers|uploads|conversations)(\/|$)/,
    "This stateful resource is not offered by this service.",
  ],
  [
    /^\/v1\/responses\/compact$/,
    "Conversations are not compacted by a resource of their own; end the input of POST /v1/responses with an item of type compaction_trigger.",
  ],
  [
    /^\/v1\/responses\/input_tokens$/,
    "Input tokens are counted by POST /v1/messages/count_tokens, for every model and in Messages form only.",
  ],
  [
    /^\/v1\/responses\/.+/,
    "Responses are not stored by this service, so they cannot be retrieved; send the whole input instead.",
  ],
  [
    /^\/v1\/chat\/completions\/.+/,
    "Chat completions are not stored by this service, so they cannot be retrieved.",
  ],
];

/** The message of a 404 for a path that no route serves. */
export function absence(method: string, path: string): string {
  const entry = known.find(([pattern]) => pattern.test(path));
  return entry?.[1] ?? `There is no ${method} ${path.slice(0, 200)} here${baseAddressAdvice(path)}`;
}

/** Advice on the most common wrong path: one vendor's clients add `/v1` to their base address, the other's do not. */
function baseAddressAdvice(path: string): string {
  if (/^\/v1\/v1(\/|$)/.test(path))
    return ": paths have one /v1, and this client adds it by itself; leave it out of its base URL.";
  if (!/^\/v1(\/|$)/.test(path))
    return ": paths of the API begin with /v1; does the client's base URL lack it?";
  return ".";
}
