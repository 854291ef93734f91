/** What a person is told of an error. */
import { ApiProblem } from "../api/client.ts";
import type { Texts } from "./en.ts";

/** Statuses below 500 of a proxy that soon lets the same request through, and those above of one that never does. */
const PASSING: readonly number[] = [408, 425, 429];
const LASTING: readonly number[] = [501, 505];

/** Returns what a person is told of an error: the service's own words where it sent some. */
export function wordsOf(error: unknown, t: Texts): string {
  if (error instanceof Error && error.name === "SignInProblem") return t.signIn.away;
  if (!(error instanceof ApiProblem)) return t.common.unreachable;
  if (error.isOwn) return error.message;
  const advice = adviceOn(error.status, t);
  const answered = t.common.proxyAnswered(error.status);
  return advice === null ? answered : `${answered} ${advice}`;
}

/** Returns what to do about an answer of what stands in front of the service; null: that is not known. */
function adviceOn(status: number, t: Texts): string | null {
  if (status === 413) return t.common.tooLargeForProxy;
  const mayPass = status >= 500 ? !LASTING.includes(status) : PASSING.includes(status);
  return mayPass ? t.common.tryAgainSoon : null;
}
