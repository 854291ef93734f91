/** The soak (docs/reliability.md) in its short form: some minutes, with a seed of its own each time. In full: `npm run soak`. */
import { expect, test } from "vitest";
import { soak } from "../soak/soak.ts";

const SEED = Number(process.env["SOAK_SEED"] ?? Date.now() % 1_000_000);
const FAULTS = 10;

test(`the whole product under load and ${FAULTS} faults, seed ${SEED}`, { timeout: 900_000 }, async () => {
  const { breaches, made, quiets, outcomes } = await soak({
    seed: SEED,
    faults: FAULTS,
    prefix: FAULTS,
    everyMs: 8_000,
    withinMs: Infinity,
    faultsAQuiet: 5,
    // Other tests run beside this one, and nobody may be there who can mount.
    disks: false,
    goOn: false,
    say: (line) => process.stderr.write(`soak: ${line}\n`),
  });
  expect(breaches).toEqual([]);
  expect({ made, quiets }).toEqual({ made: FAULTS, quiets: 3 });
  expect(outcomes["complete"]).toBeGreaterThan(100);
});
