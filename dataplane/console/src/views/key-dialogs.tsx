/** The actions on a key, each as a dialog that names it. */
import { useState } from "preact/hooks";
import type { ApiKey, Project } from "../api/schema.ts";
import { changeOf, draftOf, expiryDraft, expiryOf, type LimitsDraft } from "../lib/limits.ts";
import { Button, CopyButton, Field } from "../parts/basics.tsx";
import { Choice } from "../parts/choice.tsx";
import { Dialog, FormDialog } from "../parts/dialog.tsx";
import { CreditLimitFields, OtherLimitFields } from "../parts/limits.tsx";
import { admin } from "../session.ts";
import { useTexts } from "../texts/texts.ts";

export type Asked =
  | { readonly kind: "create" }
  | { readonly kind: "rename" | "deactivate" | "activate" | "delete"; readonly apiKey: ApiKey }
  | { readonly kind: "limits"; readonly of: ApiKey | Project };

interface KeyDialogProps {
  readonly asked: Asked;
  /** The projects that can get a key. */
  readonly projects: readonly Project[];
  readonly onClose: () => void;
  /** Reads the list again. */
  readonly onChanged: () => void;
}

export function KeyDialog({ asked, projects, onClose, onChanged }: KeyDialogProps) {
  const t = useTexts();
  if (asked.kind === "create")
    return <CreateKey projects={projects} onClose={onClose} onChanged={onChanged} />;
  if (asked.kind === "limits") return <ChangeLimits of={asked.of} onClose={onClose} onChanged={onChanged} />;
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
      <Field label={t.keys.name} value={name} onInput={setName} required autofocus />
    </FormDialog>
  );
}

function CreateKey({ projects, onClose, onChanged }: PartProps & { projects: readonly Project[] }) {
  const t = useTexts();
  const [name, setName] = useState("");
  const [project, setProject] = useState(projects.find((one) => one.name === "default")?.id ?? "default");
  const [draft, setDraft] = useState<LimitsDraft>(draftOf(null, t.separators));
  const [expiry, setExpiry] = useState("");
  const [secret, setSecret] = useState<string | null>(null);
  if (secret !== null) return <NewSecret name={name} secret={secret} onClose={onClose} />;
  const submit = async () => {
    const limits = changeOf(null, draft, t.separators);
    const made = await admin("POST /v1/organization/projects/{project_id}/api_keys", {
      path: { project_id: project },
      body: {
        name,
        ...(limits === null ? {} : { limits }),
        ...(expiry === "" ? {} : { expires_at: expiryOf(expiry) }),
      },
    });
    setSecret(made.value);
    onChanged();
  };
  return (
    <FormDialog title={t.keys.create} action={t.keys.create} onSubmit={submit} onClose={onClose}>
      <Field label={t.keys.name} value={name} onInput={setName} required autofocus />
      <Choice
        label={t.keys.project}
        value={project}
        onInput={setProject}
        choices={projects.map((one) => [one.id, one.name])}
      />
      <CreditLimitFields draft={draft} onInput={setDraft} />
      <details>
        <summary>{t.limits.more}</summary>
        <div class="stack">
          <OtherLimitFields draft={draft} onInput={setDraft} />
          <ExpiryField value={expiry} onInput={setExpiry} />
        </div>
      </details>
    </FormDialog>
  );
}

/** Changes the limits of a key, or of a project, which all its keys share. */
function ChangeLimits({ of, onClose, onChanged }: PartProps & { of: ApiKey | Project }) {
  const t = useTexts();
  const isKey = "workspace_id" in of;
  const expiresAt = isKey ? of.expires_at : null;
  const [draft, setDraft] = useState<LimitsDraft>(draftOf(of.limits, t.separators));
  const [expiry, setExpiry] = useState(expiryDraft(expiresAt));
  const submit = async () => {
    const limits = changeOf(of.limits, draft, t.separators);
    const body = {
      ...(limits === null ? {} : { limits }),
      ...(expiry === expiryDraft(expiresAt) ? {} : { expires_at: expiryOf(expiry) }),
    };
    if (isKey) await admin("POST /v1/organizations/api_keys/{id}", { path: { id: of.id }, body });
    else await admin("POST /v1/organization/projects/{project_id}", { path: { project_id: of.id }, body });
    onChanged();
    onClose();
  };
  return (
    <FormDialog title={t.limits.title(of.name)} action={t.limits.save} onSubmit={submit} onClose={onClose}>
      <p class="muted">{isKey ? t.limits.ofKey : t.limits.ofProject}</p>
      <CreditLimitFields draft={draft} onInput={setDraft} autofocus />
      <OtherLimitFields draft={draft} onInput={setDraft} />
      {isKey && <ExpiryField value={expiry} onInput={setExpiry} />}
    </FormDialog>
  );
}

function ExpiryField({ value, onInput }: { value: string; onInput: (value: string) => void }) {
  const t = useTexts();
  return (
    <Field
      label={t.keys.expires}
      type="datetime-local"
      value={value}
      onInput={onInput}
      hint={t.keys.expiresHint}
    />
  );
}

/** Shows a new key, once: it is gone when the dialog closes. */
function NewSecret({ name, secret, onClose }: { name: string; secret: string; onClose: () => void }) {
  const t = useTexts();
  return (
    <Dialog title={t.keys.made(name)} stays onClose={onClose}>
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
