/** The way on in a list that is longer than a page of it. */
import { useStore } from "../lib/store.ts";
import { place, type View } from "../router.ts";
import { ViewLink } from "./basics.tsx";

interface PageLinksProps {
  readonly view: View;
  /** What older entries follow; null: there are none. */
  readonly last: string | null;
  readonly texts: { readonly toNewest: string; readonly older: string };
}

/** Links to older entries, and from these back to the newest; also where the older ones are not, or not any more. */
export function PageLinks({ view, last, texts }: PageLinksProps) {
  const { after, ...newest } = Object.fromEntries(useStore(place).query);
  if (after === undefined && last === null) return null;
  return (
    <p class="row">
      {after !== undefined && (
        <ViewLink to={view} query={newest}>
          {texts.toNewest}
        </ViewLink>
      )}
      {last !== null && (
        <ViewLink to={view} query={{ ...newest, after: last }}>
          {texts.older}
        </ViewLink>
      )}
    </p>
  );
}
