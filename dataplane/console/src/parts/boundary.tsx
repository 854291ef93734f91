/** Confines an error in drawing to its own part: the navigation and signing out stay. */
import type { ComponentChildren } from "preact";
import { useEffect, useErrorBoundary } from "preact/hooks";
import { useStore } from "../lib/store.ts";
import { place } from "../router.ts";
import { useTexts } from "../texts/texts.ts";
import { Button } from "./basics.tsx";

export function Boundary({ children }: { children: ComponentChildren }) {
  const t = useTexts();
  const at = useStore(place);
  // An error that is caught here would be missing from the browser's own log.
  const [fault, draw] = useErrorBoundary((error: unknown) => reportError(error)) as [unknown, () => void];
  const isBroken = fault !== undefined;
  // Another address shows another view, so drawing is tried again.
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
