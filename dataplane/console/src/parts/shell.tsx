/** The frame of every view: the organization and its credit, the navigation, signing out. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Credits } from "../api/schema.ts";
import { isPositive, subtract } from "../lib/decimal.ts";
import { useLoad } from "../lib/load.ts";
import { useStore } from "../lib/store.ts";
import { place, views } from "../router.ts";
import { admin, session, signOut } from "../session.ts";
import { formatCredits, useTexts } from "../texts/texts.ts";
import { Button, ViewLink } from "./basics.tsx";
import { Boundary } from "./boundary.tsx";
import { Preferences } from "./preferences.tsx";

const CREDIT_EVERY_MS = 10_000;

export function Shell({ children }: { children: ComponentChildren }) {
  const t = useTexts();
  const at = useStore(place);
  const { view } = at;
  const [open, setOpen] = useState(false);
  const heading = useRef<HTMLHeadingElement>(null);
  const title = view === null ? t.shell.notFound : t.views[view];
  useEffect(() => {
    document.title = `${title} · ${t.product}`;
  }, [title, t]);
  // The first view leaves the focus at the start of the page; each later one moves it to its heading.
  const isFirst = useRef(true);
  // Choosing the view that is shown already closes the menu, too.
  useEffect(() => {
    setOpen(false);
    // The pressed element may have been removed with its surroundings: the focus moves to the heading then.
    if (!isFirst.current && document.activeElement === document.body) heading.current?.focus();
  }, [at]);
  useEffect(() => {
    if (isFirst.current) isFirst.current = false;
    else heading.current?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [view]);
  return (
    <div class="shell">
      <a class="skip" href="#main">
        {t.shell.skip}
      </a>
      <aside class={open ? "side open" : "side"}>
        <div class="brand">
          <img src="/console/favicon.svg" alt="" width="28" height="28" />
          <span>{t.product}</span>
          <button
            type="button"
            class="button plain menu"
            aria-expanded={open}
            aria-controls="side"
            onClick={() => setOpen(!open)}
          >
            {t.shell.menu}
          </button>
        </div>
        <div class="side-inner" id="side">
          <nav aria-label={t.shell.navigation}>
            <ul>
              {views.map((one) => (
                <li key={one}>
                  <ViewLink to={one} current={one === view}>
                    {t.views[one]}
                  </ViewLink>
                </li>
              ))}
            </ul>
          </nav>
          <Preferences />
        </div>
      </aside>
      <div class="page">
        <Boundary>
          <Account />
        </Boundary>
        <main id="main">
          <h1 ref={heading} tabIndex={-1}>
            {title}
          </h1>
          {children}
          <p class="hint">{t.common.utc}</p>
        </main>
      </div>
    </div>
  );
}

function Account() {
  const t = useTexts();
  const current = useStore(session);
  const credit = useLoad(
    (signal) => admin("GET /v1/organization/credits", { signal }),
    [current],
    CREDIT_EVERY_MS,
  );
  return (
    <>
      <header class="account" aria-busy={credit.value === null && credit.busy}>
        <strong class="organization">{current?.organization}</strong>
        {credit.value !== null && (
          <span class="credit">
            <span class="muted">{t.shell.available}</span> <b>{formatCredits(credit.value.available, t)}</b>
          </span>
        )}
        <Button kind="quiet" onClick={signOut}>
          {t.shell.signOut}
        </Button>
      </header>
      <div role="status">{credit.value !== null && <CreditNotice credit={credit.value} />}</div>
    </>
  );
}

/** Says, when no credit is available, what will fail and why. */
function CreditNotice({ credit }: { credit: Credits }) {
  const t = useTexts();
  if (isPositive(credit.available)) return null;
  const isSpent = !isPositive(subtract(credit.granted, credit.used));
  return (
    <p class={`notice ${isSpent ? "bad" : "warn"} wide`}>{isSpent ? t.shell.noCredit : t.shell.heldCredit}</p>
  );
}
