/** One try to deliver a message: through the URL guard, without redirects, bounded in time and in what is read. */
import { request } from "undici";
import type { Notification } from "../config/schema.ts";
import { causesOf, codeOf } from "../lib/causes.ts";
import { egressRules } from "../tools/url-guard/address.ts";
import { ConnectionRefusedByGuard, guardedDispatcher } from "../tools/url-guard/dispatcher.ts";
import { judgeUrl } from "../tools/url-guard/judge-url.ts";
import type { OwnAddresses } from "../tools/url-guard/own-addresses.ts";
import { UnresolvedName, type Resolver } from "../tools/url-guard/resolver.ts";

/** Each try has so long (rule 9.8). */
const TRY_MS = 15_000;

/** `reason` is for the log. */
export type SendOutcome =
  | { readonly kind: "taken" }
  | { readonly kind: "refused" | "failed"; readonly reason: string };

export interface SendDeps {
  readonly resolver: Resolver;
  /**
   * Of receivers that `allowCIDRs` opens: knows a cluster's and a hosts file's names. Others are public, anybody's, and take
   * no thread however slow their servers are.
   */
  readonly insideResolver: Resolver;
  readonly own?: OwnAddresses;
  readonly timeoutMs?: number;
}

/** Never throws. */
export async function sendMessage(
  { url, allowCidrs, allowPorts }: Notification,
  headers: Readonly<Record<string, string>>,
  body: string,
  { resolver, insideResolver, own, timeoutMs = TRY_MS }: SendDeps,
): Promise<SendOutcome> {
  const rules = egressRules({ allowCidrs, allowPorts });
  const verdict = judgeUrl(url, rules);
  if (!verdict.allowed) return { kind: "refused", reason: verdict.reason };
  const signal = AbortSignal.timeout(timeoutMs);
  const dispatcher = guardedDispatcher({
    rules,
    resolver: allowCidrs.length > 0 ? insideResolver : resolver,
    proxy: null,
    signal,
    ...(own === undefined ? {} : { own }),
  });
  try {
    const response = await request(verdict.url, { method: "POST", dispatcher, signal, headers, body });
    const { statusCode } = response;
    // What it says is of no interest: its status decides.
    response.body.on("error", () => undefined).destroy();
    return statusCode >= 200 && statusCode <= 299
      ? { kind: "taken" }
      : { kind: "failed", reason: `status ${statusCode}` };
  } catch (error) {
    const causes = causesOf(error);
    const refusal = causes.find((cause) => cause instanceof ConnectionRefusedByGuard);
    if (refusal !== undefined) return { kind: "refused", reason: refusal.message };
    const unresolved = causes.find((cause) => cause instanceof UnresolvedName);
    if (unresolved !== undefined) return { kind: "failed", reason: unresolved.message };
    return { kind: "failed", reason: signal.aborted ? "no answer in time" : nameOf(error) };
  } finally {
    await dispatcher.destroy();
  }
}

/** Of an error its code or name: a message may hold addresses. */
function nameOf(error: unknown): string {
  if (!(error instanceof Error)) return "failed";
  return codeOf(error) ?? error.name;
}
