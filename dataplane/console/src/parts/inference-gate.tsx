/** Asks for an inference key before what an admin key cannot do; it is asked for once and kept in memory (rule 11.7). */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { ApiProblem, call } from "../api/client.ts";
import { readProjects } from "../lib/organization.ts";
import { useStore } from "../lib/store.ts";
import { inferenceKey } from "../session.ts";
import { useTexts } from "../texts/texts.ts";
import { wordsOf } from "../texts/words-of.ts";
import { Button, Field } from "./basics.tsx";

export function InferenceGate({ children }: { children: ComponentChildren }) {
  const t = useTexts();
  const known = useStore(inferenceKey);
  if (known === null) return <AskForKey />;
  return (
    <>
      {children}
      <p class="row hint">
        <span>{t.gate.using}</span>
        <code>{known.slice(0, 13)}…</code>
        <Button kind="quiet" onClick={() => inferenceKey.set(null)}>
          {t.gate.change}
        </Button>
      </p>
    </>
  );
}

function AskForKey() {
  const t = useTexts();
  const [key, setKey] = useState("");
  const [busy, setBusy] = useState(false);
  const [refusal, setRefusal] = useState<string | null>(null);
  const submit = async () => {
    setBusy(true);
    setRefusal(null);
    const given = key.trim();
    try {
      const [key, projects] = await Promise.all([call(given, "GET /v1/key"), readProjects(null)]);
      // A key of another organization is refused: its data would be shown under this organization's name and balance.
      if (projects.some(({ id }) => id === key.project_id)) inferenceKey.set(given);
      else setRefusal(t.gate.foreign);
    } catch (error) {
      if (!(error instanceof ApiProblem) || error.status !== 401) setRefusal(wordsOf(error, t));
      else setRefusal(given.startsWith("sk-adm-") ? t.gate.adminKey : t.gate.refused);
    } finally {
      setBusy(false);
    }
  };
  return (
    <form
      class="card stack gate"
      method="post"
      aria-busy={busy}
      onSubmit={(event) => {
        event.preventDefault();
        if (!busy) void submit();
      }}
    >
      <p>{t.gate.intro}</p>
      <Field label={t.gate.key} type="password" value={key} onInput={setKey} required />
      {refusal !== null && (
        <p class="notice bad" role="alert">
          {refusal}
        </p>
      )}
      <div class="row">
        <Button submits kind="primary" disabled={busy}>
          {t.gate.use}
        </Button>
      </div>
    </form>
  );
}
