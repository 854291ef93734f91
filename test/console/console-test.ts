import { test } from "vitest";
import { findChromium } from "../../hack/chromium.ts";

const say = (line: string) => process.stderr.write(`console: ${line}\n`);
const isHere = await findChromium(say).then(
  () => true,
  (error: unknown) => {
    say(`no Chromium is to be had (${String(error)}); these tests are skipped (apt-get install chromium)`);
    return false;
  },
);

/** A test that needs a browser: skipped, which .ci/run counts as a failure, where there is none. */
export const consoleTest = isHere ? test : test.skip;
