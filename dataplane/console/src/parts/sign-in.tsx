/** Signing in: with an admin key, or on an organization's own page at its provider. */
import { useState } from "preact/hooks";
import { ApiProblem } from "../api/client.ts";
import { errorOf } from "../lib/error-of.ts";
import { useLoad } from "../lib/load.ts";
import { useStore } from "../lib/store.ts";
import type { SignInProblem } from "../provider.ts";
import { BASE, signInOrganization, wantedView } from "../router.ts";
import { expelled, returned, signIn, signInAt, signInOf } from "../session.ts";
import type { Texts } from "../texts/en.ts";
import { useTexts } from "../texts/texts.ts";
import { wordsOf } from "../texts/words-of.ts";
import { Button, Check, Field } from "./basics.tsx";
import { Preferences } from "./preferences.tsx";

/** The organization whose page was loaded. The page's policy allows its provider, and stays when the address changes. */
const loadedOf = signInOrganization(new URL(location.href));

export function SignIn() {
  const t = useTexts();
  return (
    <div class="sign-in">
      <main class="card">
        <img src="/console/favicon.svg" alt="" width="40" height="40" />
        <h1>{t.signIn.title}</h1>
        {loadedOf === null ? <WithKey /> : <AtProvider organization={loadedOf} />}
      </main>
      <footer>
        <Preferences />
      </footer>
    </div>
  );
}

function WithKey() {
  const t = useTexts();
  const wasExpelled = useStore(expelled);
  const [key, setKey] = useState("");
  const [stay, setStay] = useState(false);
  const [busy, setBusy] = useState(false);
  const [refusal, setRefusal] = useState<string | null>(null);
  const submit = async () => {
    const given = key.trim();
    setRefusal(given === "" ? t.signIn.empty : null);
    if (given === "") return;
    setBusy(true);
    try {
      await signIn(given, stay);
    } catch (error) {
      setRefusal(refusalOf(error, given, t));
    } finally {
      setBusy(false);
    }
  };
  const told = refusal ?? (wasExpelled ? t.signIn.expelled : null);
  return (
    <>
      <p class="muted">{t.signIn.intro}</p>
      <form
        class="stack"
        method="post"
        aria-busy={busy}
        onSubmit={(event) => {
          event.preventDefault();
          if (!busy) void submit();
        }}
      >
        <Field label={t.signIn.key} type="password" value={key} onInput={setKey} autofocus />
        <Check label={t.signIn.stay} checked={stay} onInput={setStay} />
        <Refusal told={told} />
        <Button submits kind="primary" disabled={busy}>
          {t.signIn.submit}
        </Button>
      </form>
    </>
  );
}

function AtProvider({ organization }: { organization: string }) {
  const t = useTexts();
  const wasExpelled = useStore(expelled);
  const problem = useStore(returned);
  const at = useLoad(() => signInOf(organization), [organization]);
  const [stay, setStay] = useState(false);
  const [busy, setBusy] = useState(false);
  const submit = async () => {
    if (at.value === null) return;
    setBusy(true);
    try {
      // The page is left; the button stays busy until then.
      await signInAt(at.value, stay, wantedView(new URL(location.href)));
    } catch (error) {
      returned.set(errorOf(error));
      setBusy(false);
    }
  };
  const fault = problem ?? at.problem;
  const told =
    fault === null ? (wasExpelled ? t.signIn.ended : null) : providerRefusalOf(fault, at.value === null, t);
  return (
    <>
      <p class="muted">{t.signIn.providerIntro}</p>
      <form
        class="stack"
        method="post"
        aria-busy={busy || at.busy}
        onSubmit={(event) => {
          event.preventDefault();
          if (!busy) void submit();
        }}
      >
        <Check label={t.signIn.stay} checked={stay} onInput={setStay} />
        <Refusal told={told} />
        <Button submits kind="primary" disabled={busy || at.value === null}>
          {at.value === null ? t.signIn.submit : t.signIn.submitAt(new URL(at.value.issuer).host)}
        </Button>
        <a href={BASE}>{t.signIn.withKey}</a>
      </form>
    </>
  );
}

function Refusal({ told }: { told: string | null }) {
  return (
    told !== null && (
      <p class="notice bad" role="alert">
        {told}
      </p>
    )
  );
}

function refusalOf(error: unknown, key: string, t: Texts): string {
  if (!(error instanceof ApiProblem) || error.status !== 401) return wordsOf(error, t);
  return key.startsWith("sk-svc-") ? t.signIn.inferenceKey : t.signIn.refused;
}

/** @param isUnknown whether the organization's provider is not known yet */
function providerRefusalOf(fault: Error, isUnknown: boolean, t: Texts): string {
  if (fault instanceof ApiProblem) {
    if (fault.status === 404) return t.signIn.noProvider;
    return fault.status === 401 ? t.signIn.notAllowed : wordsOf(fault, t);
  }
  if (fault.name === "SignInProblem") {
    const { reason, detail } = fault as SignInProblem;
    return reason === "refused" ? t.signIn.providerRefused(detail) : t.signIn[reason];
  }
  return isUnknown ? t.common.unreachable : t.signIn.away;
}
