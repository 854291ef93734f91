/** What kube-score, a linter of Kubernetes objects, has to say of the charts: nothing but what is meant so. */
import { spawnSync } from "node:child_process";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { kubeScore } from "../../hack/kube-score.ts";
import { render } from "./helm.ts";
import { matrix } from "./matrix.ts";

const say = (line: string) => process.stderr.write(`charts: ${line}\n`);
const program = await kubeScore(say).catch((error: unknown) => {
  say(`no kube-score (${String(error)}); these tests are skipped`);
  return null;
});

/** What it would have otherwise, as `CHECK OBJECT: words`, and why it stays. Each must occur somewhere. */
const meant: readonly (readonly [RegExp, string])[] = [
  [/^container-image-pull-policy /, "a tag of ours never moves, and image.digest pins; Always is a value"],
  [/: CPU limit is not set/, "a limit below one core makes a data plane shed load (docs/operations.md)"],
  [
    /^deployment-has-host-podantiaffinity /,
    "topologySpreadConstraints spread the pods, and do not forbid a rollout where nodes are few",
  ],
  [/^pod-networkpolicy Job\/gapura-migrate: /, "it runs before anything of the release exists (rule 6.12)"],
  [/^pod-probes Pod\/gapura-smoke: /, "it ends by itself and nobody sends to it"],
  [/^container-security-context-user-group-id StatefulSet\/\S+: .*low/, "the official images' own users"],
  [
    /^container-security-context-user-group-id /,
    "OpenShift chooses the ids where the values leave them out, and so may the containers of others",
  ],
  [
    /^pod-probes StatefulSet\/\S+: Container is missing a livenessProbe/,
    "a store that recovers must not be killed",
  ],
  [/^deployment-has-poddisruptionbudget /, "where a value switches it off"],
];

const scoreSchema = z.array(
  z.object({
    type_meta: z.object({ kind: z.string() }),
    object_meta: z.object({ name: z.string() }),
    checks: z.array(
      z.object({
        check: z.object({ id: z.string() }),
        grade: z.number(),
        skipped: z.boolean(),
        comments: z.array(z.object({ path: z.string(), summary: z.string() })).nullable(),
      }),
    ),
  }),
);
/** Of kube-score: all is well. */
const ALL_OK = 10;

describe.skipIf(program === null)("kube-score", () => {
  const faultsOf = async (values: object) => {
    const { objects } = await render({ ...values, networkPolicy: { enabled: true } });
    const input = objects.map((object) => JSON.stringify(object)).join("\n---\n");
    const run = spawnSync(program ?? "", ["score", "--output-format", "json", "-"], {
      input,
      encoding: "utf8",
    });
    if (!run.stdout.startsWith("[")) throw new Error(`kube-score: ${run.stderr}`);
    const scored = scoreSchema.parse(JSON.parse(run.stdout));
    const faults = scored.flatMap(({ type_meta: { kind }, object_meta: { name }, checks }) =>
      checks
        .filter(({ grade, skipped }) => !skipped && grade < ALL_OK)
        .flatMap(({ check, comments }) =>
          (comments ?? []).map(({ summary }) => `${check.id} ${kind}/${name}: ${summary}`),
        ),
    );
    return { scored: scored.length, faults };
  };

  test.each(matrix)("%s: nothing that is not meant so", async (_name, values) => {
    const { scored, faults } = await faultsOf(values);
    expect(scored).toBeGreaterThan(5);
    expect(faults.filter((fault) => !meant.some(([known]) => known.test(fault)))).toEqual([]);
  });

  test("every exception is needed", async () => {
    const all: string[] = [];
    for (const [, values] of matrix) all.push(...(await faultsOf(values)).faults);
    expect(meant.map(([known]) => known).filter((known) => !all.some((fault) => known.test(fault)))).toEqual(
      [],
    );
  });
});
