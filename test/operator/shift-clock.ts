/** Loaded before an operator: its wall clock is wrong by GAPURA_TEST_CLOCK_MS; monotonic time is as it is. */
const shiftMs = Number(process.env["GAPURA_TEST_CLOCK_MS"]);
const now = Date.now.bind(Date);
if (!Number.isFinite(shiftMs)) throw new Error("GAPURA_TEST_CLOCK_MS is not a number");
Date.now = () => now() + shiftMs;
