import { steadyClock, workedMs } from "../../lib/clock.ts";
import { WorkTurns } from "../../lib/work-turns.ts";

/** Work at streamed answers, shared out between organizations (rule 7.3): an upstream may send as fast as the network brings it. */
export const streamTurns = new WorkTurns({
  clock: steadyClock,
  workedMs,
  afterTurn: (call) => {
    setImmediate(call);
  },
});
