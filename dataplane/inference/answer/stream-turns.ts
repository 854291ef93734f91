import { steadyClock, workedMs } from "../../lib/clock.ts";
import { WorkTurns } from "../../lib/work-turns.ts";

/** Turns of organizations for work at streamed answers (rule 7.3): an upstream may send as fast as the network carries. */
export const streamTurns = new WorkTurns({
  clock: steadyClock,
  workedMs,
  afterTurn: (call) => {
    setImmediate(call);
  },
});
