/** Makes the conditions that a person reads, from a verdict and the answers of data-plane pods (service.md "Status"). */
import type { ConfigStatus, NoteReason } from "../../dataplane/config/schema.ts";
import type { Declared, Fault, Verdict } from "./objects.ts";
import { oncePer } from "./once-per.ts";

export type ConditionType = "Accepted" | "ResolvedRefs" | "Programmed" | "Ready" | "Stalled";

export interface Condition {
  readonly type: ConditionType;
  readonly status: "True" | "False" | "Unknown";
  readonly reason: string;
  readonly message: string;
  readonly observedGeneration: number;
}

export interface ObjectStatus {
  readonly object: Declared;
  readonly verdict: Verdict;
  readonly observedGeneration: number;
  readonly conditions: readonly Condition[];
  readonly facts: Readonly<Record<string, string | number>>;
}

/** What one data-plane pod answered; null: no answer that could be read. */
export interface PodReport {
  readonly pod: string;
  /** Whether the pod is ready. One that is not serves nobody, and still says what it can read. */
  readonly ready: boolean;
  readonly status: ConfigStatus | null;
  /** Whether the pod is ready and has not acknowledged for so long that statuses name it. */
  readonly isSilent?: boolean;
}

/** What is known of the data plane when statuses are made. */
export type Delivery =
  /** No pod is asked. */
  | { readonly kind: "unasked" }
  /** The snapshot could not be published. */
  | { readonly kind: "unpublished"; readonly reason: "PublishFailed"; readonly message: string }
  /** `pods`: the ready ones. */
  | { readonly kind: "asked"; readonly serial: number; readonly pods: readonly PodReport[] };

/** Every reason that a condition can carry, with its meaning as the configuration page has it. */
export const REASONS = {
  Accepted: {
    Accepted: "The object is valid and not in conflict.",
    Invalid:
      "A field is missing, unknown, malformed or contradicts another; the message begins with its path.",
    Immutable: "The id of an Organization was changed, removed or added later. Put it back.",
    NotPermitted:
      "This namespace may not declare it under `tenancy: Namespaced`, or its quota is used up; the message names the setting and what helps.",
    Conflicted:
      "A model belongs to another route, or an organization id to another object or namespace. Rename it; the platform can release an id (`main.ts release-organization`).",
    TooLarge:
      "The snapshot has no room for the object, the largest of the namespace that grew last. Make it smaller, or delete what is not needed.",
    Unreadable:
      "The file that declared the object cannot be read (the message has file and line), or its namespace or kind cannot be listed.",
  },
  ResolvedRefs: {
    ResolvedRefs: "Everything that the object names is there.",
    NotAccepted: "References are looked up once the object is accepted.",
    PriceNotFound:
      "The PriceTable is missing, not accepted, or has no price for the model. Nothing is sold without a price.",
    SecretNotFound:
      "The Secret or its data key is missing or empty; where the cluster lets no key be made there, the message has its words.",
    SecretForbidden:
      "The Secret is there, and the API server does not let the operator read it; the message has its words. Give the operator's account the right, or name another Secret.",
    SecretInvalid:
      "The value in the Secret is not a key of the right form, is used twice, or cannot stand in a header.",
    ToolPolicyNotFound:
      "The ToolPolicy is missing or not accepted; the route is served without server tools.",
    ModelRouteNotFound:
      "The ModelRoute of a search engine is not served; the engine before it answers, or the tool is not active.",
  },
  Programmed: {
    Programmed: "Every ready data-plane pod serves this generation.",
    Pending: "Some pods do not serve this generation yet. Wait.",
    NoPods: "No data-plane pod is ready.",
    Rejected: "A pod refused the snapshot; the message has its words.",
    Refused:
      "The data plane does not take this generation, and keeps what it took of the object before; the message names one of the notes below.",
    NotServed: "This generation is not in the snapshot; the message says whether an older one still is.",
    PublishFailed: "The snapshot could not be written; it is tried again.",
    Unacknowledged: "Folder without --ack: the snapshot is published, and no data plane is asked.",
  },
} as const;

/** Every note of a pod, with its meaning as the configuration page has it. */
export const NOTES: Readonly<Record<NoteReason, string>> = {
  GrantUnchanged:
    "The grant was applied earlier, with another amount: what it says now changes nothing. Give credit under a new name.",
  GrantRefused:
    "The grant would take the balance out of its bounds. It is tried again with each change of the configuration.",
  KeyConflicted: "Another key has the same value; this one is not served. Give it one of its own.",
  KeyExpired: "The key has expired and answers 401.",
  NamesNearlyUsedUp:
    "The namespace, under `tenancy: Namespaced`, has declared and taken away 9,000 organizations, projects and keys; at 10,000 it gets no new ones (`NamesUsedUp`). Use names again that were declared before.",
  NamesUsedUp:
    "The namespace, under `tenancy: Namespaced`, has declared and taken away 10,000 organizations, projects and keys: a new one is not served, and its keys answer 401; a key that moves to a new project goes on in its old one. Use a name again that was declared before.",
  NotStored:
    "Postgres does not take what the object says; its words follow. It is tried again, in the end every five minutes.",
  DestinationRefused:
    "The receiver's name leads to an address that is not allowed: nothing is sent. See `allowCIDRs`.",
};

type Judgement = Pick<Condition, "status" | "reason" | "message">;

/** Objects that a pod holds, by uid. */
const heldBy = oncePer(
  (status: ConfigStatus): ReadonlyMap<string, ConfigStatus["objects"][number]> =>
    new Map(status.objects.map((object) => [object.uid, object])),
);
const nothing: ReturnType<typeof heldBy> = new Map();

/** Objects that a pod refuses, by uid. */
const refusedBy = oncePer(
  ({ refused = [] }: ConfigStatus): ReadonlyMap<string, NonNullable<ConfigStatus["refused"]>[number]> =>
    new Map(refused.map((object) => [object.uid, object])),
);

/** Looks up what the pods hold, once for all objects. */
export class Holdings {
  readonly delivery: Delivery;
  readonly #pods: readonly ReturnType<typeof heldBy>[];
  /** Refused objects of each pod that refuses any. */
  readonly #refusals: readonly ReturnType<typeof refusedBy>[];
  readonly #rejection: string | null;
  /** For each pod its name if it is silent, else null. */
  readonly #silent: readonly (string | null)[];
  /** Judgements of objects without notes, by the number of pods that hold them and the names of silent others. */
  readonly #counted = new Map<string, Judgement>();

  constructor(delivery: Delivery) {
    this.delivery = delivery;
    const reports = delivery.kind === "asked" ? delivery.pods : [];
    this.#pods = reports.map(({ status }) => (status === null ? nothing : heldBy(status)));
    this.#refusals = reports
      .flatMap(({ status }) => (status === null ? [] : refusedBy(status)))
      .filter(({ size }) => size > 0);
    this.#silent = reports.map(({ pod, isSilent }) => (isSilent === true ? pod : null));
    const serial = delivery.kind === "asked" ? delivery.serial : null;
    // A pod that cannot even read the serial rejects what was published last.
    const isAbout = (rejected: ConfigStatus["rejected"] | undefined) =>
      rejected !== null && rejected !== undefined && (rejected.serial ?? serial) === serial;
    this.#rejection =
      reports.map(({ status }) => status?.rejected).find((rejected) => isAbout(rejected))?.error ?? null;
  }

  programmed(verdict: Verdict): Judgement {
    const { object } = verdict;
    if (verdict.serves !== object.generation) {
      const still =
        verdict.serves === null
          ? "nothing of it is served"
          : `its last good configuration (generation ${verdict.serves}) is still served`;
      return {
        status: "False",
        reason: "NotServed",
        message: `generation ${object.generation} is not served; ${still}`,
      };
    }
    if (this.delivery.kind === "unpublished")
      return { status: "False", reason: this.delivery.reason, message: this.delivery.message };
    if (this.delivery.kind === "unasked")
      return { status: "Unknown", reason: "Unacknowledged", message: "published; no data plane is asked" };
    return this.#refused(object) ?? this.#held(object);
  }

  /** Returns null unless a pod refuses the object's generation. */
  #refused({ uid, generation }: Declared): Judgement | null {
    const refusals = this.#refusals.flatMap((pod) => pod.get(uid) ?? []);
    const refusing = refusals.filter((refusal) => refusal.generation === generation);
    if (refusing.length === 0) return null;
    const told = refusing.map(({ reason, message: words }) => [reason, words ?? []].flat().join(": "));
    const reasons = [...new Set(told)].join(", ");
    const message = `refused by ${refusing.length}/${this.#pods.length} pods: ${reasons}`;
    return { status: "False", reason: "Refused", message };
  }

  /** Counts the pods that hold the object's generation. */
  #held({ uid, generation }: Declared): Judgement {
    let holding = 0;
    let notes: Set<string> | null = null;
    const silent: string[] = [];
    for (const [index, pod] of this.#pods.entries()) {
      const found = pod.get(uid);
      if (found?.generation !== generation) {
        const name = this.#silent[index] ?? null;
        if (name !== null) silent.push(name);
        continue;
      }
      holding += 1;
      for (const { path, reason } of found.notes) notes = (notes ?? new Set()).add(`${path}: ${reason}`);
    }
    const key = [holding, ...silent].join(" ");
    let judged = this.#counted.get(key);
    if (judged === undefined) this.#counted.set(key, (judged = this.#judge(holding, silent)));
    if (notes === null || judged.status !== "True") return judged;
    return { ...judged, message: [judged.message, ...notes].join("; ") };
  }

  /** `holding`: how many pods hold the object's generation; `silent`: which of the others are to be named. */
  #judge(holding: number, silent: readonly string[]): Judgement {
    const count = `${holding}/${this.#pods.length} pods`;
    if (this.#pods.length === 0) return { status: "False", reason: "NoPods", message: count };
    if (holding === this.#pods.length) return { status: "True", reason: "Programmed", message: count };
    const named = silent.slice(0, MAX_NAMED).join(", ");
    const more = silent.length > MAX_NAMED ? ` and ${silent.length - MAX_NAMED} more` : "";
    const message = silent.length === 0 ? count : `${count}; no acknowledgement from ${named}${more}`;
    return this.#rejection === null
      ? { status: "False", reason: "Pending", message }
      : { status: "False", reason: "Rejected", message: `${message}; rejected: ${this.#rejection}` };
  }
}

/** The last status of each verdict. */
const lastStatuses = new WeakMap<Verdict, ObjectStatus>();

/** Returns the status of a verdict: the very same object as before when it says the same, as most of 10,000 do. */
export function statusOf(verdict: Verdict, holdings: Holdings): ObjectStatus {
  const judgement = holdings.programmed(verdict);
  const last = lastStatuses.get(verdict);
  const said = last === undefined ? undefined : conditionOf(last, "Programmed");
  if (
    last !== undefined &&
    said?.status === judgement.status &&
    said.reason === judgement.reason &&
    said.message === cut(judgement.message)
  )
    return last;
  const status = makeStatus(verdict, judgement);
  lastStatuses.set(verdict, status);
  return status;
}

function makeStatus(verdict: Verdict, judgement: Judgement): ObjectStatus {
  const { object } = verdict;
  const observedGeneration = object.generation;
  const condition = (type: ConditionType, { status, reason, message }: Judgement): Condition => ({
    type,
    status,
    reason,
    message: cut(message),
    observedGeneration,
  });

  const accepted = condition("Accepted", judged(verdict.accepted, "Accepted", verdict.notes.join("; ")));
  const resolved = condition(
    "ResolvedRefs",
    verdict.accepted.length > 0 && verdict.resolved.length === 0
      ? {
          status: "Unknown",
          reason: "NotAccepted",
          message: "references are looked up once the object is accepted",
        }
      : judged(verdict.resolved, "ResolvedRefs", ""),
  );
  const programmed = condition("Programmed", judgement);
  const cause =
    [accepted, resolved, programmed].find(({ status }) => status === "False") ??
    [resolved, programmed].find(({ status }) => status === "Unknown");
  const ready = condition("Ready", cause ?? { status: "True", reason: "Ready", message: programmed.message });
  const isRefused = programmed.reason === "Refused";
  const fault = [accepted, resolved, ...(isRefused ? [programmed] : [])].find(
    ({ status }) => status === "False",
  );
  return {
    object,
    verdict,
    observedGeneration,
    conditions: [
      accepted,
      resolved,
      programmed,
      ready,
      ...(fault === undefined ? [] : [condition("Stalled", { ...fault, status: "True" })]),
    ],
    facts: verdict.facts,
  };
}

/** Longest message; the API allows 32 KiB, people read less. */
const MAX_MESSAGE = 2000;
/** Cuts a message. Half a character would come back from the API server as another text, and be written for ever. */
const cut = (message: string) => message.slice(0, MAX_MESSAGE).toWellFormed();
const MAX_NAMED = 3;

function judged(faults: readonly Fault<string>[], good: string, note: string): Judgement {
  const [first] = faults;
  if (first === undefined) return { status: "True", reason: good, message: note };
  const named = faults.slice(0, MAX_NAMED).map(faultText);
  const more = faults.length > MAX_NAMED ? [`and ${faults.length - MAX_NAMED} more`] : [];
  return { status: "False", reason: first.reason, message: [...named, ...more].join("; ") };
}

const faultText = ({ path, message }: Fault<string>): string =>
  path === "" ? message : `${path}: ${message}`;

export const conditionOf = (status: ObjectStatus, type: ConditionType): Condition | undefined =>
  status.conditions.find((condition) => condition.type === type);
