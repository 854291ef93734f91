/** What a view shows is loaded by one hook: busy, failed, loaded, loaded again. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { errorOf } from "./error-of.ts";

export interface Loaded<Value> {
  /** The last one that came, also while the next one is on its way. */
  readonly value: Value | null;
  /** Whether that one answers other inputs than the present ones, which are on their way or have failed. */
  readonly isStale: boolean;
  readonly problem: Error | null;
  readonly busy: boolean;
  readonly again: () => void;
}

interface State<Value> extends Omit<Loaded<Value>, "again" | "isStale"> {
  /** What was loaded: the inputs, and how often they were asked for. */
  readonly asked: readonly unknown[];
  /** The same of the value. */
  readonly answered: readonly unknown[];
  /** Whether the value is what came before the whole, which is on its way or has failed. */
  readonly isPart: boolean;
}

/** A typed filter changes with every letter: the server is asked once it has not changed for so many milliseconds. */
const STANDING_MS = 250;

/**
 * @param load may show a part before the whole has come
 * @param inputs what the answer depends on; a change drops the running request, and is answered `STANDING_MS` later
 * @param everyMs loads again after so long; 0: never
 */
export function useLoad<Value>(
  load: (signal: AbortSignal, show: (part: Value) => void) => Promise<Value>,
  inputs: readonly unknown[],
  everyMs = 0,
): Loaded<Value> {
  const [turn, setTurn] = useState(0);
  const asked = [...inputs, turn];
  const [state, setState] = useState<State<Value>>({
    value: null,
    problem: null,
    busy: true,
    asked,
    answered: asked,
    isPart: false,
  });
  const again = useCallback(() => setTurn((before) => before + 1), []);
  /** What was asked for before. */
  const former = useRef(inputs);
  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const hasChanged = inputs.some((input, index) => input !== former.current[index]);
    former.current = inputs;
    setState((before) => ({ ...before, problem: hasChanged ? null : before.problem, busy: true, asked }));
    const show = (part: Value) => {
      if (stop.signal.aborted) return;
      setState((before) => {
        // Whoever reads a whole goes on reading it until the next one is whole.
        const isWhole = before.value !== null && !before.isPart;
        const answersThis = inputs.every((input, index) => input === before.answered[index]);
        if (isWhole && answersThis) return before;
        return { value: part, problem: null, busy: true, asked, answered: asked, isPart: true };
      });
    };
    const ask = () =>
      load(stop.signal, show).then(
        (value) => {
          if (stop.signal.aborted) return;
          setState({ value, problem: null, busy: false, asked, answered: asked, isPart: false });
          if (everyMs > 0) timer = setTimeout(again, everyMs);
        },
        (error: unknown) => {
          if (stop.signal.aborted) return;
          const problem = errorOf(error);
          setState((before) => ({ ...before, problem, busy: false }));
          if (everyMs > 0) timer = setTimeout(again, everyMs * 3);
        },
      );
    if (hasChanged) timer = setTimeout(() => void ask(), STANDING_MS);
    else void ask();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [...asked, everyMs]);
  // The effect runs after the first drawing with other inputs: that one shows the old value, and has to say so.
  const isOld = asked.some((input, index) => input !== state.asked[index]);
  const isStale = state.value !== null && inputs.some((input, index) => input !== state.answered[index]);
  return { value: state.value, problem: state.problem, busy: state.busy || isOld, isStale, again };
}
