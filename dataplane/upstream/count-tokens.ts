/** Asks an upstream to count a Messages request's tokens. Counting is free, so it gets little time and no second attempt. */
import type { Dispatcher } from "undici";
import { z } from "zod";
import type { Upstream } from "../config/schema.ts";
import { shownCredential, usualHeaders } from "./endpoints.ts";
import { UpstreamCall } from "./send.ts";

/** Short, because the fallback, counting in this process, takes milliseconds. */
const TIMEOUT_MS = 5_000;
const MAX_COUNT_BYTES = 64 * 1024;

const answerSchema = z.object({ input_tokens: z.number().int().nonnegative() });

export interface CountRequest {
  readonly upstream: Upstream;
  /** Value of the upstream's credential, when it has one. */
  readonly credential: string | undefined;
  /** The request with the upstream's name of the model. */
  readonly body: Buffer;
  /** Version and beta headers, names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}

export type CountUpstream = (question: CountRequest) => Promise<number | null>;

/** @returns the count, or null when this upstream does not count or fails in any way. */
export const countUpstream =
  (dispatcher: Dispatcher): CountUpstream =>
  async ({ upstream, credential, body, headers, signal }) => {
    // A signal that has aborted already calls no new listener.
    if (upstream.countTokensUrl === null || signal.aborted) return null;
    const { origin, pathname, search } = new URL(upstream.countTokensUrl);
    const sent = { ...usualHeaders("application/json"), ...headers, ...upstream.headers };
    if (upstream.credential !== null && credential !== undefined)
      sent[upstream.credential.header] = shownCredential(upstream.credential, credential);
    const call = new UpstreamCall({
      origin,
      path: pathname + search,
      headers: Object.entries(sent).flat(),
      body,
      connectMs: TIMEOUT_MS,
      firstByteMs: TIMEOUT_MS,
      idleMs: null,
    });
    const stop = () => call.abort("cancelled");
    const timer = setTimeout(() => call.abort("deadline"), TIMEOUT_MS);
    signal.addEventListener("abort", stop, { once: true });
    try {
      const { status } = await call.start(dispatcher).head;
      const answer = await call.whole(MAX_COUNT_BYTES);
      if (status !== 200) return null;
      const parsed = answerSchema.safeParse(JSON.parse(answer.toString("utf8")));
      return parsed.success ? parsed.data.input_tokens : null;
    } catch {
      // Unreachable, slow, cut, not JSON: the count is made here instead.
      return null;
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", stop);
    }
  };
