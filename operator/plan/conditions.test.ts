import { describe, expect, test } from "vitest";
import { conditionOf, type Delivery, Holdings, type PodReport, REASONS, statusOf } from "./conditions.ts";
import type { Declared, Verdict } from "./objects.ts";

const object: Declared = {
  kind: "ModelRoute",
  namespace: "default",
  name: "m",
  uid: "u",
  generation: 3,
  creationTimestamp: null,
  createdAt: 0,
  spec: {},
  faults: [],
};
const source = { kind: "ModelRoute", namespace: "default", name: "m", uid: "u" } as const;
const good: Verdict = { object, accepted: [], resolved: [], serves: 3, notes: [], facts: {} };
const refusal = (message?: string) =>
  message === undefined ? { reason: "NamesUsedUp" } : { reason: "NotStored", message };
const pod = (
  generation: number | null,
  more: {
    notes?: { path: string; reason: string }[];
    rejected?: string;
    refused?: number;
    /** Why, in the pod's words. */
    said?: string;
  } = {},
) => {
  const report: PodReport = {
    pod: "p",
    ready: true,
    status: {
      hash: null,
      serial: 7,
      podUid: "p",
      accepts: [1],
      rejected: more.rejected === undefined ? null : { serial: 7, error: more.rejected },
      objects: generation === null ? [] : [{ ...source, generation, notes: more.notes ?? [] }],
      ...(more.refused === undefined
        ? {}
        : { refused: [{ ...source, generation: more.refused, ...refusal(more.said) }] }),
    },
  };
  return report;
};
const silent: PodReport = { pod: "silent", ready: true, status: null };
const asked = (...pods: PodReport[]): Delivery => ({ kind: "asked", serial: 7, pods });

interface Case {
  readonly title: string;
  readonly delivery: Delivery;
  readonly verdict?: Partial<Verdict>;
  readonly programmed: string;
}
const cases: readonly Case[] = [
  {
    title: "all pods hold it",
    delivery: asked(pod(3), pod(3), pod(3)),
    programmed: "True Programmed: 3/3 pods",
  },
  {
    title: "a pod has something to say about it",
    delivery: asked(
      pod(3, { notes: [{ path: "spec.credits.grants[0]", reason: "GrantUnchanged" }] }),
      pod(3),
    ),
    programmed: "True Programmed: 2/2 pods; spec.credits.grants[0]: GrantUnchanged",
  },
  {
    title: "a ready pod has been silent for long",
    delivery: asked(pod(3), { ...silent, isSilent: true }),
    programmed: "False Pending: 1/2 pods; no acknowledgement from silent",
  },
  {
    title: "five pods have: three are named, and the rest counted",
    delivery: asked(
      pod(3),
      ...["p1", "p2", "p3", "p4", "p5"].map((name) => ({ ...silent, pod: name, isSilent: true })),
    ),
    programmed: "False Pending: 1/6 pods; no acknowledgement from p1, p2, p3 and 2 more",
  },
  {
    title: "a silent pod holds it all the same",
    delivery: asked({ ...pod(3), isSilent: true }, pod(3)),
    programmed: "True Programmed: 2/2 pods",
  },
  {
    title: "one pod holds an older generation",
    delivery: asked(pod(3), pod(2)),
    programmed: "False Pending: 1/2 pods",
  },
  {
    title: "one pod does not answer",
    delivery: asked(pod(3), silent),
    programmed: "False Pending: 1/2 pods",
  },
  { title: "no pod is ready", delivery: asked(), programmed: "False NoPods: 0/0 pods" },
  {
    title: "a pod refused the snapshot",
    delivery: asked(pod(3), pod(2, { rejected: "routes[0]: bad" })),
    programmed: "False Rejected: 1/2 pods; rejected: routes[0]: bad",
  },
  {
    title: "pods refuse the object",
    delivery: asked(pod(null, { refused: 3 }), pod(null, { refused: 3 }), silent),
    programmed: "False Refused: refused by 2/3 pods: NamesUsedUp",
  },
  {
    title: "pods refuse the object in words",
    delivery: asked(pod(2, { refused: 3, said: "too odd" }), pod(2, { refused: 3, said: "too odd" })),
    programmed: "False Refused: refused by 2/2 pods: NotStored: too odd",
  },
  {
    title: "pods refused it as it was before",
    delivery: asked(pod(3, { refused: 2 })),
    programmed: "True Programmed: 1/1 pods",
  },
  {
    title: "nobody is asked",
    delivery: { kind: "unasked" },
    programmed: "Unknown Unacknowledged: published; no data plane is asked",
  },
  {
    title: "the snapshot cannot be written",
    delivery: { kind: "unpublished", reason: "PublishFailed", message: "disk full" },
    programmed: "False PublishFailed: disk full",
  },
  {
    title: "its last good entry is served",
    delivery: asked(pod(2)),
    verdict: { serves: 2, accepted: [{ reason: "Invalid", path: "spec.x", message: "is wrong" }] },
    programmed:
      "False NotServed: generation 3 is not served; its last good configuration (generation 2) is still served",
  },
];
const programmedOf = ({ verdict, delivery }: Case) => {
  const condition = conditionOf(statusOf({ ...good, ...verdict }, new Holdings(delivery)), "Programmed");
  return `${condition?.status} ${condition?.reason}: ${condition?.message}`;
};

describe("Programmed", () => {
  test.for(cases.map((one) => ({ ...one, label: one.title })))("rules 6.1, 6.2: $label", (one) => {
    expect(programmedOf(one)).toBe(one.programmed);
  });

  test("every reason has a case", () => {
    const seen = new Set(cases.map((one) => / (\w+):/.exec(one.programmed)?.[1] ?? ""));
    expect(Object.keys(REASONS.Programmed).filter((reason) => !seen.has(reason))).toEqual([]);
  });
});

describe("Ready and Stalled", () => {
  const status = (verdict: Partial<Verdict>, delivery: Delivery) =>
    statusOf({ ...good, ...verdict }, new Holdings(delivery));
  const fault = { reason: "SecretNotFound", path: "spec.a", message: 'Secret "s" has no key "k"' } as const;

  test("rule 6.4: waiting for pods is not Stalled", () => {
    const waiting = status({}, asked(pod(2)));
    expect(conditionOf(waiting, "Ready")).toMatchObject({
      status: "False",
      reason: "Pending",
      message: "0/1 pods",
    });
    expect(conditionOf(waiting, "Stalled")).toBeUndefined();
  });

  test("rule 6.4: a missing Secret leaves Accepted True, is Stalled, and Ready repeats the cause", () => {
    const missing = status({ resolved: [fault] }, asked(pod(3)));
    const message = 'spec.a: Secret "s" has no key "k"';
    expect(conditionOf(missing, "Accepted")).toMatchObject({ status: "True" });
    for (const type of ["ResolvedRefs", "Ready"] as const)
      expect(conditionOf(missing, type)).toMatchObject({
        status: "False",
        reason: "SecretNotFound",
        message,
      });
    expect(conditionOf(missing, "Stalled")).toMatchObject({
      status: "True",
      reason: "SecretNotFound",
      message,
    });
  });

  test("rule 6.4: what the data plane refuses is Stalled, as waiting helps nothing", () => {
    const refused = status({}, asked(pod(null, { refused: 3 })));
    for (const [type, is] of [
      ["Ready", "False"],
      ["Stalled", "True"],
    ] as const)
      expect(conditionOf(refused, type)).toMatchObject({
        status: is,
        reason: "Refused",
        message: "refused by 1/1 pods: NamesUsedUp",
      });
  });

  test("the four conditions are always there, each with the generation it is about", () => {
    for (const one of cases) {
      const { conditions, observedGeneration } = status(one.verdict ?? {}, one.delivery);
      expect(conditions.slice(0, 4).map(({ type }) => type)).toEqual([
        "Accepted",
        "ResolvedRefs",
        "Programmed",
        "Ready",
      ]);
      expect([observedGeneration, ...conditions.map((condition) => condition.observedGeneration)]).toEqual([
        3,
        ...conditions.map(() => 3),
      ]);
    }
  });

  test("many faults are named up to three and counted beyond", () => {
    const faults = Array.from({ length: 5 }, (_, index) => ({
      ...fault,
      path: `spec.a[${index}]`,
      message: "x",
    }));
    expect(conditionOf(status({ resolved: faults }, asked()), "ResolvedRefs")?.message).toBe(
      "spec.a[0]: x; spec.a[1]: x; spec.a[2]: x; and 2 more",
    );
  });
});

describe("the status of one verdict", () => {
  const programmed = (delivery: Delivery) => statusOf(good, new Holdings(delivery));
  test("is the very same object while the pods say the same", () => {
    const status = programmed(asked(pod(3), pod(3)));
    expect(programmed(asked(pod(3), pod(3)))).toBe(status);
    expect(statusOf({ ...good }, new Holdings(asked(pod(3), pod(3))))).toEqual(status);
  });
  test.for<{ title: string; delivery: Delivery; says: string }>([
    { title: "another number of pods", delivery: asked(pod(3)), says: "True Programmed: 1/1 pods" },
    { title: "a pod that lags", delivery: asked(pod(3), pod(2)), says: "False Pending: 1/2 pods" },
    { title: "a silent pod", delivery: asked(pod(3), silent), says: "False Pending: 1/2 pods" },
    {
      title: "a pod that refuses",
      delivery: asked(pod(3), pod(2, { rejected: "bad" })),
      says: "False Rejected: 1/2 pods; rejected: bad",
    },
    {
      title: "a note",
      delivery: asked(pod(3), pod(3, { notes: [{ path: "spec.x", reason: "Odd" }] })),
      says: "True Programmed: 2/2 pods; spec.x: Odd",
    },
    {
      title: "a snapshot that is not written",
      delivery: { kind: "unpublished", reason: "PublishFailed", message: "disk full" },
      says: "False PublishFailed: disk full",
    },
  ])("is made anew after $title", ({ delivery, says }) => {
    const before = programmed(asked(pod(3), pod(3)));
    const status = programmed(delivery);
    const condition = conditionOf(status, "Programmed");
    expect(`${condition?.status} ${condition?.reason}: ${condition?.message}`).toBe(says);
    expect(programmed(asked(pod(3), pod(3)))).toEqual(before);
  });
});

test("a message is cut between characters: the API server would give half of one back as another text, to be written anew", () => {
  const message = `${"x".repeat(1999)}😀`;
  const verdict: Verdict = { ...good, accepted: [{ reason: "Invalid", path: "", message }] };
  const { conditions } = statusOf(verdict, new Holdings({ kind: "unasked" }));
  expect(conditions.map((condition) => condition.message.isWellFormed())).not.toContain(false);
});
