/** What can be done with a key, each as one dialog that names it. */
import { useState } from "preact/hooks";
import type { ApiKey, Project } from "../api/schema.ts";
import { Button, Choice, CopyButton, Field } from "../parts/basics.tsx";
import { Dialog, FormDialog } from "../parts/dialog.tsx";
import { admin } from "../session.ts";
import { useTexts } from "../texts/texts.ts";

export type Asked =
  | { readonly kind: "create" }
  | { readonly kind: "rename" | "deactivate" | "activate" | "delete"; readonly apiKey: ApiKey };

interface KeyDialogProps {
  readonly asked: Asked;
  /** Those that can get a key. */
  readonly projects: readonly Project[];
  readonly onClose: () => void;
  /** The list is to be read again. */
  readonly onChanged: () => void;
}

export function KeyDialog({ asked, projects, onClose, onChanged }: KeyDialogProps) {
  const t = useTexts();
  if (asked.kind === "create")
    return <CreateKey projects={projects} onClose={onClose} onChanged={onChanged} />;
  const { kind, apiKey } = asked;
  if (kind === "rename") return <RenameKey apiKey={apiKey} onClose={onClose} onChanged={onChanged} />;
  const words = t.keys.questions[kind];
  const submit = async () => {
    const path = { id: apiKey.id, project_id: apiKey.workspace_id };
    if (kind === "delete")
      await admin("DELETE /v1/organization/projects/{project_id}/api_keys/{id}", { path });
    else
      await admin("POST /v1/organizations/api_keys/{id}", {
        path,
        body: { status: kind === "activate" ? "active" : "inactive" },
      });
    onChanged();
    onClose();
  };
  return (
    <FormDialog
      title={words.title(apiKey.name)}
      action={words.action}
      dangerous={kind === "delete"}
      onSubmit={submit}
      onClose={onClose}
    >
      <p>{words.text}</p>
      <p class="muted">
        <code>{apiKey.partial_key_hint}</code> · {apiKey.id}
      </p>
    </FormDialog>
  );
}

const periods = ["day", "week", "month", "total"] as const;
type Period = (typeof periods)[number];

type PartProps = Omit<KeyDialogProps, "asked" | "projects">;

function RenameKey({ apiKey, onClose, onChanged }: PartProps & { apiKey: ApiKey }) {
  const t = useTexts();
  const [name, setName] = useState(apiKey.name);
  const submit = async () => {
    await admin("POST /v1/organizations/api_keys/{id}", { path: { id: apiKey.id }, body: { name } });
    onChanged();
    onClose();
  };
  return (
    <FormDialog
      title={t.keys.renameTitle(apiKey.name)}
      action={t.keys.rename}
      onSubmit={submit}
      onClose={onClose}
    >
      <Field label={t.keys.name} value={name} onInput={setName} required maxLength={500} autofocus />
    </FormDialog>
  );
}

function CreateKey({ projects, onClose, onChanged }: PartProps & { projects: readonly Project[] }) {
  const t = useTexts();
  const [name, setName] = useState("");
  const [project, setProject] = useState(projects.find((one) => one.name === "default")?.id ?? "default");
  const [amount, setAmount] = useState("");
  const [per, setPer] = useState<Period>("month");
  const [secret, setSecret] = useState<string | null>(null);
  if (secret !== null) return <NewSecret name={name} secret={secret} onClose={onClose} />;
  const submit = async () => {
    const made = await admin("POST /v1/organization/projects/{project_id}/api_keys", {
      path: { project_id: project },
      body: {
        name,
        ...(amount.trim() === "" ? {} : { limits: { credits: { amount: amount.trim(), per } } }),
      },
    });
    setSecret(made.value);
    onChanged();
  };
  return (
    <FormDialog title={t.keys.create} action={t.keys.create} onSubmit={submit} onClose={onClose}>
      <Field label={t.keys.name} value={name} onInput={setName} required maxLength={500} autofocus />
      <Choice
        label={t.keys.project}
        value={project}
        onInput={setProject}
        choices={projects.map((one) => [one.id, one.name])}
      />
      <Field
        label={t.keys.limit}
        value={amount}
        onInput={setAmount}
        inputMode="decimal"
        pattern="[0-9]+([.][0-9]+)?"
        hint={t.keys.limitHint}
      />
      <Choice
        label={t.keys.per}
        value={per}
        onInput={(chosen) => setPer(periods.find((one) => one === chosen) ?? "month")}
        choices={periods.map((one) => [one, t.keys.periods[one]])}
      />
    </FormDialog>
  );
}

/** The only time that a key is shown; with the dialog it is gone. */
function NewSecret({ name, secret, onClose }: { name: string; secret: string; onClose: () => void }) {
  const t = useTexts();
  return (
    <Dialog title={t.keys.made(name)} onClose={onClose}>
      <div class="stack">
        <p>{t.keys.shownOnce}</p>
        <code class="secret">{secret}</code>
        <div class="row end">
          <CopyButton text={secret} />
          <Button kind="primary" onClick={onClose}>
            {t.common.done}
          </Button>
        </div>
      </div>
    </Dialog>
  );
}
