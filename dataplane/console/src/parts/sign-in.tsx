import { useState } from "preact/hooks";
import { ApiProblem } from "../api/client.ts";
import { useStore } from "../lib/store.ts";
import { expelled, signIn } from "../session.ts";
import { useTexts, type Texts } from "../texts/texts.ts";
import { Button, Check, Field } from "./basics.tsx";
import { Preferences } from "./preferences.tsx";

export function SignIn() {
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
    <div class="sign-in">
      <main class="card">
        <img src="/console/favicon.svg" alt="" width="40" height="40" />
        <h1>{t.signIn.title}</h1>
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
          {told !== null && (
            <p class="notice bad" role="alert">
              {told}
            </p>
          )}
          <Button submits kind="primary" disabled={busy}>
            {t.signIn.submit}
          </Button>
        </form>
      </main>
      <footer>
        <Preferences />
      </footer>
    </div>
  );
}

function refusalOf(error: unknown, key: string, t: Texts): string {
  if (!(error instanceof ApiProblem)) return t.common.unreachable;
  if (error.status !== 401) return error.message;
  return key.startsWith("sk-svc-") ? t.signIn.inferenceKey : t.signIn.refused;
}
