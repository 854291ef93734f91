/** Asks a model route on a search's behalf (the Model engine of web_search); never billed to the client. */
import { routeFor } from "../../config/find-route.ts";
import type { Snapshot } from "../../config/snapshot.ts";
import { Cancellation } from "../../lib/cancellation.ts";
import { Deadline } from "../../lib/deadline.ts";
import { parseSmallJson } from "../../lib/small-json.ts";
import { newRequestSummary } from "../../telemetry/request-summary.ts";
import type { AskModel } from "../../tools/web-search/model-engine.ts";
import { Attempts } from "../../upstream/attempts.ts";
import type { Upstreams } from "../../upstream/upstreams.ts";
import type { BodyLease } from "../call.ts";
import { toldVersion } from "../request/outgoing-request.ts";

/** Longest answer of a search: text with a few links. */
const MAX_ANSWER_BYTES = 2 * 1024 * 1024;

/**
 * Returns a function that asks a model; it @throws when the route is gone, or no upstream of it answers with JSON.
 * @param lease counts an answer's bytes until it is read; without room for them the search fails.
 * @param organizationId the organization that searches: no upstream that is dedicated to another one is asked.
 * @param servesNamespace of the calling route: an engine's route is of the same namespace, and serves the same one.
 */
export const askModelOf =
  (
    snapshot: Snapshot,
    upstreams: Upstreams,
    lease: Pick<BodyLease, "receive" | "giveBack">,
    organizationId: string,
    servesNamespace?: string,
  ): AskModel =>
  async (model, build, signal) => {
    const served = snapshot.route(model, servesNamespace);
    const route = served === undefined ? undefined : routeFor(served, organizationId);
    if (route === undefined) throw new Error("the search engine's model is not served");
    const deadline = new Deadline(route.timeouts.requestMs);
    let counted = 0;
    const takeRoom = (bytes: number) => {
      counted += lease.receive(bytes);
    };
    try {
      const attempts = new Attempts(upstreams, {
        route,
        stream: false,
        batch: false,
        conversation: null,
        deadline,
        closed: Cancellation.by(signal),
        unbilled: true,
        // Upstream calls and waiting of the engine are not the client's request's.
        summary: newRequestSummary(null),
        credential: (id) => snapshot.credential(id),
      });
      for (;;) {
        const { dialect, model: name } = await attempts.next();
        try {
          const answer = await attempts.send({
            body: Buffer.from(JSON.stringify({ ...build(dialect), model: name })),
            headers: dialect === "messages" ? { "anthropic-version": toldVersion(undefined) } : {},
          });
          const body = await answer.call.whole(MAX_ANSWER_BYTES, takeRoom);
          answer.accepted();
          attempts.taken();
          return { dialect, body: parseSmallJson(body) };
        } catch (error) {
          attempts.failed(error);
        }
      }
    } finally {
      deadline.dispose();
      lease.giveBack(counted);
    }
  };
