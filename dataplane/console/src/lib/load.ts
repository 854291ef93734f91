/** The hook by which every view loads what it shows: busy, failed, loaded, loaded again. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { errorOf } from "./error-of.ts";

export interface Loaded<Value> {
  /** The last value that was loaded, also while the next one is being loaded. */
  readonly value: Value | null;
  /** Whether that value is of earlier inputs: those of the present ones are being loaded, or failed. */
  readonly isStale: boolean;
  readonly problem: Error | null;
  readonly busy: boolean;
  readonly again: () => void;
}

interface State<Value> extends Omit<Loaded<Value>, "again" | "isStale"> {
  /** The inputs of the last load, and how often they were loaded. */
  readonly asked: readonly unknown[];
  /** The same for `value`. */
  readonly answered: readonly unknown[];
  /** Whether the value is only a part: the whole is being loaded, or failed. */
  readonly isPart: boolean;
}

/** Milliseconds that inputs must stand before the server is asked: a typed filter changes with every letter. */
const STANDING_MS = 250;

/**
 * @param load may call `show` with a part before the whole is loaded
 * @param inputs values that the answer depends on; a change aborts the running load, and the next begins `STANDING_MS` later
 * @param everyMs time after which it loads again; 0: never
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
  /** The inputs of the load before. */
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
        // A whole value of the same inputs stays shown until the next one is whole.
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
  // The effect runs after the first drawing with changed inputs. That drawing shows the old value, so it must count as busy.
  const isOld = asked.some((input, index) => input !== state.asked[index]);
  const isStale = state.value !== null && inputs.some((input, index) => input !== state.answered[index]);
  return { value: state.value, problem: state.problem, busy: state.busy || isOld, isStale, again };
}
