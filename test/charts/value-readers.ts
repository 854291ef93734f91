/** How the tests of the values read what the chart renders. */
import { podOf, type Rendered } from "./helm.ts";

interface Container {
  readonly name: string;
  readonly image: string;
  readonly imagePullPolicy?: string;
  readonly env?: readonly { readonly name: string; readonly value?: string; readonly valueFrom?: object }[];
}

/** Reads what stands at a path of an object; `undefined` when the object or the path is not there. */
export const at =
  (kind: string, name: string, ...path: readonly (string | number)[]) =>
  (rendered: Rendered): unknown => {
    const object: unknown = rendered.all(kind).find(({ metadata }) => metadata.name === name);
    return path.reduce<unknown>(
      (value, step) => (value as Record<string | number, unknown> | undefined)?.[step],
      object,
    );
  };
const POD = ["spec", "template", "spec"] as const;
export const dataPlane = (...path: readonly (string | number)[]) =>
  at("Deployment", "gapura-data-plane", ...POD, ...path);
const containers = (rendered: Rendered): Container[] =>
  rendered.objects.flatMap((object) => {
    const pod = podOf(object) as { containers: Container[]; initContainers?: Container[] } | null;
    return pod === null ? [] : [...pod.containers, ...(pod.initContainers ?? [])];
  });
/** Of every container that runs our image. */
export const ofOurImage = (read: (container: Container) => unknown) => (rendered: Rendered) => [
  ...new Set(
    containers(rendered)
      .filter(({ name }) => name !== "postgres" && name !== "redis")
      .map(read),
  ),
];
/** A variable of one program's environment. */
export const env = (program: string, variable: string) => (rendered: Rendered) =>
  containers(rendered)
    .find(({ name }) => name === program)
    ?.env?.find(({ name }) => name === variable);
export const isThere = (kind: string, name: string) => (rendered: Rendered) =>
  at(kind, name)(rendered) !== undefined;
export const imageOf = (program: string) => (rendered: Rendered) =>
  containers(rendered).find(({ name }) => name === program)?.image;
export const secret = (variable: string, name: string, key: string) => ({
  name: variable,
  valueFrom: { secretKeyRef: { name, key } },
});
export const last = (read: (rendered: Rendered) => unknown) => (rendered: Rendered) =>
  (read(rendered) as unknown[] | undefined)?.at(-1);

export const CLAIM = ["spec", "volumeClaimTemplates", 0, "spec"] as const;
export const ingress = { enabled: true, host: "api.example.com" };
export const quickstart = { enabled: true };
export const autoscaling = { enabled: true };
export const HPA = ["HorizontalPodAutoscaler", "gapura-data-plane", "spec"] as const;

export interface Case {
  /** The value that is proved. */
  readonly value: string;
  /** Renders without and with it; `base` is common to both. */
  readonly base?: object;
  readonly set: object;
  readonly read: (rendered: Rendered) => unknown;
  readonly is: unknown;
}
