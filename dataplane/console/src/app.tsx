import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { errorOf } from "./lib/error-of.ts";
import { useLoad } from "./lib/load.ts";
import { useStore } from "./lib/store.ts";
import { Problem, ViewLink } from "./parts/basics.tsx";
import { Boundary } from "./parts/boundary.tsx";
import { Shell } from "./parts/shell.tsx";
import { SignIn } from "./parts/sign-in.tsx";
import { resume } from "./resume.ts";
import { place, type View } from "./router.ts";
import { session } from "./session.ts";
import { useTexts } from "./texts/texts.ts";

/** Each view is a file of its own, loaded when it is first shown. */
const loaders: Readonly<Record<View, () => Promise<{ readonly default: ComponentType }>>> = {
  overview: () => import("./views/overview.tsx"),
  keys: () => import("./views/keys.tsx"),
  usage: () => import("./views/usage.tsx"),
  costs: () => import("./views/costs.tsx"),
  requests: () => import("./views/requests.tsx"),
  models: () => import("./views/models.tsx"),
  batches: () => import("./views/batches.tsx"),
  files: () => import("./views/files.tsx"),
  playground: () => import("./views/playground.tsx"),
  configuration: () => import("./views/configuration.tsx"),
};

export function App() {
  const t = useTexts();
  const current = useStore(session);
  const resumed = useLoad(async () => {
    await resume();
    return true;
  }, []);
  useEffect(() => {
    if (current === null) document.title = `${t.signIn.title} · ${t.product}`;
  }, [current, t]);
  if (current === null) {
    if (resumed.problem !== null) return <Problem problem={resumed.problem} again={resumed.again} />;
    return resumed.value === null ? <div aria-busy="true" /> : <SignIn />;
  }
  return (
    <Shell>
      <CurrentView />
    </Shell>
  );
}

/** Whether the service serves the page now. */
const isServed = (): Promise<boolean> =>
  fetch(location.pathname, { method: "HEAD", cache: "no-store" }).then(
    ({ ok }) => ok,
    () => false,
  );

function CurrentView() {
  const t = useTexts();
  const { view } = useStore(place);
  const [shown, setShown] = useState<{ readonly view: View; readonly Component: ComponentType } | null>(null);
  const [problem, setProblem] = useState<Error | null>(null);
  /** The view whose loading is being retried. */
  const [again, setAgain] = useState<{ readonly view: View } | null>(null);
  useEffect(() => {
    let isCurrent = true;
    setProblem(null);
    if (view !== null)
      loaders[view]().then(
        (module) => {
          if (isCurrent) setShown({ view, Component: module.default });
        },
        async (error: unknown) => {
          // A new build has other files, so the page itself is old and is reloaded; that forgets a key that does not stay.
          if (again?.view === view && (await isServed())) location.reload();
          else if (isCurrent) setProblem(errorOf(error));
        },
      );
    return () => {
      isCurrent = false;
    };
  }, [view, again]);
  if (view === null)
    return (
      <p>
        {t.shell.notFoundHint} <ViewLink to="overview">{t.shell.toOverview}</ViewLink>
      </p>
    );
  if (problem !== null) return <Problem problem={problem} again={() => setAgain({ view })} />;
  if (shown?.view !== view) return <div class="skeleton" aria-busy="true" />;
  return (
    <Boundary key={view}>
      <shown.Component />
    </Boundary>
  );
}
