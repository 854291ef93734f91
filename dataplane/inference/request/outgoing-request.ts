/** Writes a request for a route's candidates, relayed or converted, and leaves out of it what they refuse. */
import type { Route, Upstream } from "../../config/schema.ts";
import type { KeepItem, Sealer } from "../../dialects/codecs.ts";
import { droppedHeader } from "../../dialects/losses.ts";
import type { Deadline } from "../../lib/deadline.ts";
import type { Outgoing, UpstreamRequest } from "../../upstream/request.ts";
import type { OwnField } from "../../dialects/own-fields.ts";
import type { ToldPlaces } from "../../dialects/told-places.ts";
import type { TierPlan } from "../../dialects/tiers.ts";
import { refusedPart } from "../upstream-refusals/asking-again.ts";
import { isStrict, type InferenceCall } from "../call.ts";
import { choosePath, pathNeeds, type PathNeeds, type ServingPath } from "./choose-path.ts";
import { conversionFacts, type Converting, type Written } from "./conversion.ts";
import type { RelayBody } from "./edits.ts";
import { keepItemOf, showsReasoning } from "./item-references.ts";
import { checkMedia, checkTextOnly } from "./refuse.ts";
import type { RequestBody } from "./request-body.ts";
import { tierPlan } from "./tier-plan.ts";
import { betasToward, leaveOutBetas, refusedBetas, sentBetas } from "../upstream-refusals/refused-betas.ts";
import { planToward, refusedOwn, proofLost, tellWithout } from "../upstream-refusals/unknown-fields.ts";

/** Version of a Messages client that names none (service.md "Headers"). */
const DEFAULT_VERSION = "2023-06-01";

/** Returns the version that an upstream is sent: the client's, if it names one. */
export const toldVersion = (given: unknown): string =>
  typeof given === "string" && given.trim() !== "" ? given : DEFAULT_VERSION;

/** What a candidate was sent. */
export interface Sent {
  readonly path: ServingPath;
  /** Which of its places an error may name to the client. */
  readonly places: ToldPlaces;
  /** The value of `x-gapura-dropped`. */
  readonly dropped: string | null;
  /** Whether we, not the client, asked for usage (relay). */
  readonly usageInjected: boolean;
  /** Whether we, not the client, asked for the content of reasoning. */
  readonly reasoningAsked: boolean;
  /** Fields of own-fields.ts that it has: an upstream may be asked again without them. */
  readonly own: readonly OwnField[];
}

/** @param conversation key of the conversation, which stays with one upstream (design.md §4.6); null: any upstream may take it. */
export const upstreamRequest = (
  { batchId, sink, summary, snapshot }: InferenceCall,
  route: Route,
  stream: boolean,
  conversation: string | null,
  deadline: Deadline,
): UpstreamRequest => ({
  route,
  stream,
  batch: batchId !== null,
  conversation,
  deadline,
  closed: sink.closed,
  summary,
  credential: (id) => snapshot.credential(id),
});

export class OutgoingRequest {
  requestBody: RequestBody;
  needs: PathNeeds;
  readonly keepItem: KeepItem | undefined;
  /** What the candidate that is being asked was sent. */
  sent: Sent = {
    path: "relay",
    places: "all",
    dropped: null,
    usageInjected: false,
    reasoningAsked: false,
    own: [],
  };
  /** Read when the first candidate needs it. */
  conversion: Converting | null = null;
  readonly #call: InferenceCall;
  readonly route: Route;
  readonly #showsReasoning: boolean;
  readonly sealer: Sealer;
  readonly tiers: TierPlan;
  /** The candidate that is being asked. */
  asked: Upstream | null = null;
  /** Whether a Responses upstream is asked for the content of its reasoning. */
  #encryptedReasoning = true;

  constructor(call: InferenceCall, requestBody: RequestBody, route: Route, sealer: Sealer) {
    this.requestBody = requestBody;
    this.needs = pathNeeds(requestBody.inspected);
    this.keepItem = keepItemOf(call, requestBody.inspected);
    this.#showsReasoning = showsReasoning(call, requestBody.inspected);
    this.#call = call;
    this.route = route;
    this.sealer = sealer;
    this.tiers = tierPlan(call, requestBody.inspected, route);
  }

  /** Refuses what no candidate can read, before anything is held for it. @throws ApiError */
  checkReadable(): undefined | Converting | Promise<Converting> {
    checkMedia(this.requestBody.inspected, this.route);
    if (this.route.upstreams.every(({ dialect }) => choosePath(this.needs, dialect) === "convert"))
      return this.#read();
    return undefined;
  }

  /** Writes the request for this candidate. @throws ApiError when it cannot serve the request at all. */
  write(upstream: Upstream): Outgoing | Promise<Outgoing> {
    const path = choosePath(this.needs, upstream.dialect);
    this.#call.summary.servingPath = path;
    this.asked = upstream;
    switch (path) {
      case "relay": {
        const wishes = {
          strict: isStrict(this.#call),
          encryptedReasoning: this.#encryptedReasoning && this.#showsReasoning,
          tiers: planToward(this.tiers, upstream),
        };
        const relayed = this.requestBody.relay(this.route, upstream, wishes, this.sealer);
        if (relayed instanceof Promise) return relayed.then((body) => this.#relayed(upstream, body));
        return this.#relayed(upstream, relayed);
      }
      case "convert": {
        const conversion = this.#read();
        return conversion instanceof Promise
          ? conversion.then((read) => this.#converted(upstream, read))
          : this.#converted(upstream, conversion);
      }
      case "tools":
        throw new Error("a request with server tools is served by its loop");
    }
  }

  #relayed(upstream: Upstream, { body, dropped, usageInjected, reasoningAsked, own }: RelayBody): Outgoing {
    const names = droppedHeader(dropped);
    this.sent = { path: "relay", places: "all", dropped: names, usageInjected, reasoningAsked, own };
    return { body, headers: this.headers(upstream) };
  }

  #converted(upstream: Upstream, conversion: Converting): Outgoing | Promise<Outgoing> {
    const asked = this.#encryptedReasoning;
    const told = ({ body, dropped, own, places }: Written): Outgoing => {
      const reasoningAsked = upstream.dialect === "responses" && asked;
      this.sent = { path: "convert", places, dropped, usageInjected: false, reasoningAsked, own };
      return { body, headers: this.headers(upstream) };
    };
    const written = conversion.write(upstream, asked);
    return written instanceof Promise ? written.then(told) : told(written);
  }

  #read(): Converting | Promise<Converting> {
    if (this.conversion !== null) return this.conversion;
    checkTextOnly(this.requestBody.inspected);
    const facts = conversionFacts(this.#call, this.requestBody.inspected, this.route, this.tiers);
    const read = this.requestBody.read(facts, this.sealer, this.keepItem);
    const keep = (conversion: Converting) => (this.conversion = conversion);
    return read instanceof Promise ? read.then(keep) : keep(read);
  }

  /** Leaves out, or rewrites, what the candidate refused. false: nothing that the request can do without. */
  async leaveOut(refusal: unknown): Promise<boolean> {
    const { asked: upstream, tiers } = this;
    if (upstream === null) return false;
    const { path, reasoningAsked, own } = this.sent;
    const betas = sentBetas(tiers, upstream, isStrict(this.#call));
    switch (refusedPart(refusal, { mayHoist: path === "convert", reasoningAsked, own, betas })) {
      case "betas":
        proofLost(tiers, upstream);
        leaveOutBetas(tiers, upstream, refusedBetas(refusal, betas) ?? []);
        return true;
      case "system turns":
        proofLost(tiers, upstream);
        return (await this.#read()).hoistSystemTurns();
      case "own fields":
        tellWithout(tiers, upstream, refusedOwn(refusal, own));
        return true;
      case "reasoning's content":
        proofLost(tiers, upstream);
        this.#encryptedReasoning = false;
        return true;
      case "reasoning":
        proofLost(tiers, upstream);
        return this.#forgetReasoning();
      case null:
        return false;
    }
  }

  /** Leaves out the reasoning of earlier turns, which was made in another account. */
  async #forgetReasoning(): Promise<boolean> {
    const requestBody = await this.requestBody.withoutReasoning();
    if (requestBody === null) return false;
    this.requestBody = requestBody;
    this.needs = pathNeeds(requestBody.inspected);
    this.conversion = null;
    return true;
  }

  /** Only these of the client's headers go upstream (design.md §4.1). */
  headers(upstream: Upstream): Record<string, string> {
    if (upstream.dialect !== "messages") return {};
    const { "anthropic-version": version } = this.#call.headers;
    const betas = betasToward(this.tiers, upstream);
    return {
      "anthropic-version": toldVersion(version),
      ...(betas === null ? {} : { "anthropic-beta": betas }),
    };
  }
}
