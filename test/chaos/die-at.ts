/**
 * Preloaded into a data plane (`node --import`): kills it with SIGKILL when it reaches a step of the money's way
 * (billing/steps.ts) or of a batch's (batches/steps.ts) for the N-th time. GAPURA_TEST_DIE_AT is `step:N`.
 */
import { subscribe } from "node:diagnostics_channel";

const [step, count = "1"] = (process.env["GAPURA_TEST_DIE_AT"] ?? "").split(":");
let left = Number(count);

for (const channel of ["gapura:money", "gapura:batches"]) {
  subscribe(channel, (reached) => {
    if (reached !== step) return;
    left -= 1;
    if (left === 0) process.kill(process.pid, "SIGKILL");
  });
}
