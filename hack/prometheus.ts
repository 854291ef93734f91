/** Prometheus and its promtool, for tests of alerts and dashboards. */
import { arch } from "node:os";
import type { Say } from "./cache.ts";
import { findProgram, type Program } from "./debian.ts";

export interface PrometheusTools {
  readonly promtool: Program;
  readonly prometheus: Program;
}

/** @throws Error saying why there is none. */
export async function prometheusTools(say: Say): Promise<PrometheusTools> {
  const find = (program: string) =>
    findProgram({ folder: `prometheus-${arch()}`, choices: [{ program, debianPackage: "prometheus" }] }, say);
  return { promtool: await find("promtool"), prometheus: await find("prometheus") };
}
