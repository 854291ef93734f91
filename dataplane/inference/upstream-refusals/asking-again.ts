/** Asks an upstream again without what it refused, or with that rewritten, where the request can do without. */
import type { OwnField } from "../../dialects/own-fields.ts";
import { refusedBetas, type SentBetas } from "./refused-betas.ts";
import { cannotSealReasoning, rejectsReasoning } from "./rejected-reasoning.ts";
import { rejectsSystemTurns } from "./rejected-system-turns.ts";
import { refusedOwn } from "./unknown-fields.ts";

/** The request as the refusing upstream got it. */
export interface RefusedRequest {
  /** Whether its system turns may move to the leading instructions. */
  readonly mayHoist: boolean;
  /** Whether we, not the client, asked for the content of reasoning. */
  readonly reasoningAsked: boolean;
  /** Fields of own-fields.ts that it has: an upstream may be asked again without them. */
  readonly own: readonly OwnField[];
  readonly betas: SentBetas;
}

/** `reasoning`: of earlier turns, which another account made (rule 2.17). */
type RefusedPart = "betas" | "system turns" | "own fields" | "reasoning's content" | "reasoning";

/** Returns the part that was refused; null: something else, which the client has to know. */
export function refusedPart(error: unknown, refused: RefusedRequest): RefusedPart | null {
  const { mayHoist, reasoningAsked, own, betas } = refused;
  // First, because a beta's name may hold the others' words.
  const names = refusedBetas(error, betas);
  if (names !== null) return names.length > 0 ? "betas" : null;
  if (mayHoist && rejectsSystemTurns(error)) return "system turns";
  if (refusedOwn(error, own).length > 0) return "own fields";
  if (reasoningAsked && cannotSealReasoning(error)) return "reasoning's content";
  return rejectsReasoning(error) ? "reasoning" : null;
}

/** Most times that one request is asked again. */
const MAX_AGAIN = 5;

/**
 * Asks again as long as the refused part could be left out.
 * @param leaveOut false: there was nothing to leave out.
 * @throws the last refusal, and what `ask` throws.
 */
export async function askAgain<Answer>(
  error: unknown,
  ask: () => Promise<Answer>,
  leaveOut: (error: unknown) => Promise<boolean>,
): Promise<Answer> {
  let refusal = error;
  for (let again = 0; again < MAX_AGAIN && (await leaveOut(refusal)); again += 1) {
    try {
      return await ask();
    } catch (next) {
      refusal = next;
    }
  }
  throw refusal;
}
