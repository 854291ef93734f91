/** Documents of issuers: discovery and key sets, through the URL guard (rule 13.4). */
import { request } from "undici";
import type { IdentityEntry } from "../../config/schema.ts";
import { parseSmallJson } from "../../lib/small-json.ts";
import { readPageBody } from "../../tools/web-fetch/body.ts";
import { egressRules } from "../../tools/url-guard/address.ts";
import { guardedDispatcher } from "../../tools/url-guard/dispatcher.ts";
import { judgeUrl } from "../../tools/url-guard/judge-url.ts";
import type { Resolver } from "../../tools/url-guard/resolver.ts";

/** Largest document; those of the largest providers have a twentieth of it. */
const MOST_BYTES = 512 * 1024;
const FETCH_MS = 5_000;
/** Both types: a Kubernetes API server answers 406 when its keys are asked for with the first alone. */
const ACCEPT = "application/json, application/jwk-set+json";

/** Reads one JSON document. @throws Error that says why not, for the log. */
export type FetchJson = (
  url: string,
  opened: Pick<IdentityEntry, "allowCidrs" | "allowPorts">,
) => Promise<unknown>;

/** @param ca certificate authorities to trust instead of the system's and those of `NODE_EXTRA_CA_CERTS`, PEM */
export const guardedFetchJson =
  (resolver: Resolver, ca?: string): FetchJson =>
  async (url, opened) => {
    const rules = egressRules({ ...opened, anyPortInside: true });
    const verdict = judgeUrl(url, rules);
    if (!verdict.allowed) throw new Error(verdict.reason);
    if (verdict.url.protocol !== "https:") throw new Error("not https");
    const signal = AbortSignal.timeout(FETCH_MS);
    // No connection is kept open between one fetch and the next.
    const dispatcher = guardedDispatcher({
      rules,
      resolver,
      proxy: null,
      signal,
      ...(ca === undefined ? {} : { ca }),
    });
    try {
      const { statusCode, body } = await request(verdict.url, {
        dispatcher,
        signal,
        headers: { accept: ACCEPT, "accept-encoding": "identity" },
      });
      // Redirects fail too: an issuer that moved needs another declaration.
      if (statusCode !== 200) throw new Error(`status ${statusCode}`);
      const read = await readPageBody(body, "", { maxBytes: MOST_BYTES });
      if (read.kind === "failed") throw new Error(read.detail);
      return parseSmallJson(read.bytes);
    } finally {
      await dispatcher.destroy();
    }
  };
