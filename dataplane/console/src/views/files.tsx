/** Stored files, how long they are kept, and how much storage they take. */
import { useState } from "preact/hooks";
import { longPage } from "../api/client.ts";
import type { Credits, File as StoredFile } from "../api/schema.ts";
import { contentUrl, useDownload } from "../lib/download.ts";
import { useFilters } from "../lib/filters.ts";
import { useLoad } from "../lib/load.ts";
import { useStore } from "../lib/store.ts";
import { Button, Empty, Field, Meter, Moment, Problem, Section } from "../parts/basics.tsx";
import { IdChoice } from "../parts/choice.tsx";
import { FormDialog } from "../parts/dialog.tsx";
import { InferenceGate } from "../parts/inference-gate.tsx";
import { PageLinks } from "../parts/page-links.tsx";
import { Table, type Column } from "../parts/table.tsx";
import { place } from "../router.ts";
import { admin, inference } from "../session.ts";
import { formatBytes, formatCount, useTexts } from "../texts/texts.ts";

const MOST_FILES = 10_000;

export default function Files() {
  return (
    <InferenceGate>
      <FileList />
    </InferenceGate>
  );
}

function FileList() {
  const t = useTexts();
  const filtered = useFilters("here");
  const [purpose, search] = [filtered("purpose"), filtered("search")];
  const after = useStore(place).query.get("after") ?? "";
  const [doomed, setDoomed] = useState<StoredFile | null>(null);
  const { problem, save } = useDownload();
  const loaded = useLoad(
    async (signal) => {
      const [credit, files] = await Promise.all([
        admin("GET /v1/organization/credits", { signal }),
        longPage(MOST_FILES, (query) => inference("GET /v1/files", { query, signal }), after),
      ]);
      const last = files.has_more ? (files.data.at(-1)?.id ?? null) : null;
      return { credit, files: files.data, last };
    },
    [after],
  );
  const last = loaded.value?.last ?? null;
  return (
    <>
      {problem !== null && <Problem problem={problem} />}
      <Section loaded={loaded}>
        {({ credit, files }) => {
          const purposes = [...new Set(files.map((file) => file.purpose))].sort();
          const sought = search.value.trim().toLowerCase();
          const shown = files.filter(
            (file) =>
              (purpose.value === "" || file.purpose === purpose.value) &&
              [file.filename, file.id].some((text) => text.toLowerCase().includes(sought)),
          );
          return (
            <>
              <Storage credit={credit} />
              <div class="filters">
                <Field label={t.common.search} type="search" {...search} />
                <IdChoice
                  label={t.files.purpose}
                  things={purposes.map((one) => ({ id: one, name: one }))}
                  {...purpose}
                />
              </div>
              {shown.length === 0 ? (
                <Empty title={purpose.value + sought === "" ? t.files.empty : t.files.noMatch}>
                  <p>{t.files.emptyHint}</p>
                </Empty>
              ) : (
                <FileTable
                  files={shown}
                  onSave={({ id, filename }) =>
                    void save(filename, contentUrl(id), "application/octet-stream")
                  }
                  onDelete={setDoomed}
                />
              )}
            </>
          );
        }}
      </Section>
      <PageLinks view="files" last={last} texts={t.files} />
      {(last !== null || after !== "") && <p class="hint">{t.files.most(formatCount(MOST_FILES, t))}</p>}
      {doomed !== null && (
        <FormDialog
          title={t.files.deleteTitle(doomed.filename)}
          action={t.common.delete}
          dangerous
          onClose={() => setDoomed(null)}
          onSubmit={async () => {
            await inference("DELETE /v1/files/{id}", { path: { id: doomed.id } });
            setDoomed(null);
            loaded.again();
          }}
        >
          <p>{t.files.deleteText}</p>
          <p class="muted">{doomed.id}</p>
        </FormDialog>
      )}
    </>
  );
}

interface FileTableProps {
  readonly files: readonly StoredFile[];
  readonly onSave: (file: StoredFile) => void;
  readonly onDelete: (file: StoredFile) => void;
}

function FileTable({ files, onSave, onDelete }: FileTableProps) {
  const t = useTexts();
  const columns: Column<StoredFile>[] = [
    {
      title: t.files.name,
      heads: true,
      cell: (file) => (
        <>
          {file.filename}
          <span class="second">{file.id}</span>
        </>
      ),
    },
    { title: t.files.purpose, cell: (file) => file.purpose },
    { title: t.files.size, numeric: true, cell: (file) => <Bytes count={file.bytes} /> },
    {
      title: t.keys.created,
      cell: (file) => (file.created_at === null ? "–" : <Moment at={file.created_at} />),
    },
    {
      title: t.files.expires,
      cell: (file) => (file.expires_at === null ? t.common.noExpiry : <Moment at={file.expires_at} />),
    },
    {
      title: t.common.actions,
      cell: (file) => (
        <span class="actions">
          {file.downloadable && (
            <Button kind="quiet" onClick={() => onSave(file)}>
              {t.files.download}
            </Button>
          )}
          <Button kind="quiet" onClick={() => onDelete(file)}>
            {t.common.delete}
          </Button>
        </span>
      ),
    },
  ];
  return <Table name={t.views.files} columns={columns} rows={files} id={({ id }) => id} />;
}

/** A size in short form, and exact to the byte. */
function Bytes({ count }: { count: number }) {
  const t = useTexts();
  return (
    <>
      {formatBytes(count, t)}
      <span class="second">{t.files.bytes(formatCount(count, t))}</span>
    </>
  );
}

function Storage({ credit: { storage } }: { credit: Credits }) {
  const t = useTexts();
  return (
    <div class="card stack">
      <p class="row between">
        <span>
          {t.files.used(formatBytes(storage.bytes, t), formatBytes(storage.max_bytes, t))}
          <span class="second">{t.files.bytes(formatCount(storage.bytes, t))}</span>
        </span>
        <span class="muted">
          {t.files.count(formatCount(storage.files, t), formatCount(storage.max_files, t))}
        </span>
      </p>
      <Meter label={t.files.room} value={storage.bytes} most={storage.max_bytes} />
    </div>
  );
}
