/**
 * Preloaded into a data plane (`node --import`): with each SIGUSR2 80 seconds have passed, by the clock that says how long
 * ago something was (`performance.now`). Timers and the time of day go on as they were.
 */
const real = performance.now.bind(performance);
let passedMs = 0;
performance.now = () => real() + passedMs;
process.on("SIGUSR2", () => (passedMs += 80_000));
