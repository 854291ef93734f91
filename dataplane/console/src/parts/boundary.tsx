/** What fails to be drawn takes nothing away but itself: the way to the other views, and out, stays. */
import type { ComponentChildren } from "preact";
import { useEffect, useErrorBoundary } from "preact/hooks";
import { useStore } from "../lib/store.ts";
import { place } from "../router.ts";
import { useTexts } from "../texts/texts.ts";
import { Button } from "./basics.tsx";

export function Boundary({ children }: { children: ComponentChildren }) {
  const t = useTexts();
  const at = useStore(place);
  // Caught here it would reach nobody who looks for it in the browser's own log.
  const [fault, draw] = useErrorBoundary((error: unknown) => reportError(error)) as [unknown, () => void];
  const isBroken = fault !== undefined;
  // Another address shows something else.
  useEffect(() => {
    if (isBroken) draw();
  }, [at]);
  if (!isBroken) return <>{children}</>;
  return (
    <div class="notice bad" role="alert">
      <p>{t.common.broken}</p>
      {fault instanceof Error && <p class="hint">{fault.message}</p>}
      <Button onClick={draw}>{t.common.tryAgain}</Button>
    </div>
  );
}
