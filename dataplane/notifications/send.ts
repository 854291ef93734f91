/** One try to deliver a message: through the URL guard, without redirects, bounded in time and in the bytes read. */
import { request } from "undici";
import type { Notification } from "../config/schema.ts";
import { causesOf, codeOf } from "../lib/causes.ts";
import { egressRules } from "../tools/url-guard/address.ts";
import { ConnectionRefusedByGuard, guardedDispatcher } from "../tools/url-guard/dispatcher.ts";
import { judgeUrl } from "../tools/url-guard/judge-url.ts";
import type { OwnAddresses } from "../tools/url-guard/own-addresses.ts";
import { UnresolvedName, type Resolver } from "../tools/url-guard/resolver.ts";

/** Time-out of a try (rule 9.8). */
const TRY_MS = 15_000;

/** The outcome of a try; `reason` is for the log. */
export type SendOutcome =
  | { readonly kind: "taken" }
  | { readonly kind: "refused" | "failed"; readonly reason: string };

export interface SendDeps {
  readonly resolver: Resolver;
  /**
   * For receivers with `allowCIDRs`: it knows the names of a cluster and of a hosts file. All others use `resolver`: their names
   * are public and may be anybody's, and it takes no thread however slow their servers are.
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
    // The body is not read: the status decides.
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

/** Returns an error's code or name: its message may hold addresses. */
function nameOf(error: unknown): string {
  if (!(error instanceof Error)) return "failed";
  return codeOf(error) ?? error.name;
}
