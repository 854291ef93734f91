import { sql } from "slonik";

/** Writes Unix milliseconds as a constant: the planner leaves out the days that are not asked for. */
export const timestamp = (unixMs: number) => sql.fragment`${new Date(unixMs).toISOString()}::timestamptz`;
