/** What a view shows is loaded by one hook: busy, failed, loaded, loaded again. */
import { useCallback, useEffect, useState } from "preact/hooks";

export interface Loaded<Value> {
  /** The last one that came, also while the next one is on its way. */
  readonly value: Value | null;
  readonly problem: Error | null;
  readonly busy: boolean;
  readonly again: () => void;
}

/**
 * @param load may show a part before the whole has come
 * @param inputs what the answer depends on; a change drops the running request
 * @param everyMs loads again after so long; 0: never
 */
export function useLoad<Value>(
  load: (signal: AbortSignal, show: (part: Value) => void) => Promise<Value>,
  inputs: readonly unknown[],
  everyMs = 0,
): Loaded<Value> {
  const [state, setState] = useState<Omit<Loaded<Value>, "again">>({
    value: null,
    problem: null,
    busy: true,
  });
  const [turn, setTurn] = useState(0);
  const again = useCallback(() => setTurn((before) => before + 1), []);
  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    setState((before) => ({ ...before, busy: true }));
    const show = (part: Value) => {
      if (!stop.signal.aborted) setState({ value: part, problem: null, busy: true });
    };
    load(stop.signal, show).then(
      (value) => {
        if (stop.signal.aborted) return;
        setState({ value, problem: null, busy: false });
        if (everyMs > 0) timer = setTimeout(again, everyMs);
      },
      (error: unknown) => {
        if (stop.signal.aborted) return;
        const problem = error instanceof Error ? error : new Error(String(error));
        setState((before) => ({ ...before, problem, busy: false }));
        if (everyMs > 0) timer = setTimeout(again, everyMs * 3);
      },
    );
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [...inputs, turn, everyMs]);
  return { ...state, again };
}
