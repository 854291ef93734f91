/** Batches of both kinds: their progress, what failed and why, their results. */
import { useRef, useState } from "preact/hooks";
import { MOST_BYTES, MOST_LINES, readFailedLines, type FailedLines } from "../lib/batch-lines.ts";
import { badgeOf, MOST_BATCHES, readBatches, type BatchRow, type HeldPage } from "../lib/batches.ts";
import { useDownload } from "../lib/download.ts";
import { useFilters } from "../lib/filters.ts";
import { useLoad } from "../lib/load.ts";
import { useStore } from "../lib/store.ts";
import { Badge, Button, Empty, Field, Moment, Problem, Section } from "../parts/basics.tsx";
import { Choice } from "../parts/choice.tsx";
import { Dialog, FormDialog } from "../parts/dialog.tsx";
import { InferenceGate } from "../parts/inference-gate.tsx";
import { PageLinks } from "../parts/page-links.tsx";
import { Table, type Column } from "../parts/table.tsx";
import { place } from "../router.ts";
import { inference, inferenceStream } from "../session.ts";
import { formatBytes, formatCount, useTexts } from "../texts/texts.ts";

const LIVE_MS = 3_000;

type Asked = { readonly kind: "cancel" | "failures"; readonly row: BatchRow };

export default function Batches() {
  return (
    <InferenceGate>
      <BatchList />
    </InferenceGate>
  );
}

function BatchList() {
  const t = useTexts();
  const filtered = useFilters("here");
  const [status, search] = [filtered("status"), filtered("search")];
  const after = useStore(place).query.get("after") ?? "";
  const [asked, setAsked] = useState<Asked | null>(null);
  const { problem, save } = useDownload();
  const held = useRef<HeldPage | null>(null);
  const loaded = useLoad(
    async (signal) => (held.current = await readBatches(after, held.current, signal)),
    [after],
    LIVE_MS,
  );
  const last = loaded.value?.last ?? null;
  return (
    <>
      <div class="filters">
        <Field label={t.common.search} type="search" {...search} />
        <Choice
          label={t.common.status}
          {...status}
          choices={[
            ["", t.common.all],
            ["running", t.batches.running],
            ["ended", t.batches.ended],
          ]}
        />
      </div>
      {problem !== null && <Problem problem={problem} />}
      <Section loaded={loaded.value === null || loaded.isStale ? loaded : { ...loaded, busy: false }}>
        {({ rows }) => {
          const shown = rows.filter(
            ({ id, isRunning }) =>
              (status.value === "" || isRunning === (status.value === "running")) &&
              id.includes(search.value.trim()),
          );
          return shown.length === 0 ? (
            <Empty title={status.value + search.value === "" ? t.batches.empty : t.batches.noMatch}>
              <p>{t.batches.emptyHint}</p>
            </Empty>
          ) : (
            <BatchTable
              rows={shown}
              onAsk={setAsked}
              onSave={({ id, results }) => void save(`${id}.jsonl`, results ?? "", "application/jsonl")}
            />
          );
        }}
      </Section>
      <PageLinks view="batches" last={last} texts={t.batches} />
      {(last !== null || after !== "") && <p class="hint">{t.batches.most(formatCount(MOST_BATCHES, t))}</p>}
      {asked?.kind === "cancel" && (
        <FormDialog
          title={t.batches.cancelTitle(asked.row.id)}
          action={t.batches.cancel}
          dismissal={t.batches.keep}
          dangerous
          onClose={() => setAsked(null)}
          onSubmit={async () => {
            const path = { id: asked.row.id };
            if (asked.row.kind === "messages")
              await inference("POST /v1/messages/batches/{id}/cancel", { path });
            else await inference("POST /v1/batches/{id}/cancel", { path });
            setAsked(null);
            loaded.again();
          }}
        >
          <p>{t.batches.cancelText}</p>
        </FormDialog>
      )}
      {asked?.kind === "failures" && <Failures row={asked.row} onClose={() => setAsked(null)} />}
    </>
  );
}

interface BatchTableProps {
  readonly rows: readonly BatchRow[];
  readonly onAsk: (asked: Asked) => void;
  /** Saves the batch's results. */
  readonly onSave: (row: BatchRow) => void;
}

function BatchTable({ rows, onAsk, onSave }: BatchTableProps) {
  const t = useTexts();
  const columns: Column<BatchRow>[] = [
    {
      title: t.batches.batch,
      heads: true,
      cell: ({ id, kind }) => (
        <>
          {id}
          <span class="second">{t.batches.kinds[kind]}</span>
        </>
      ),
    },
    {
      title: t.common.status,
      cell: (row) => <Badge kind={badgeOf(row)}>{row.status.replaceAll("_", " ")}</Badge>,
    },
    { title: t.batches.total, numeric: true, cell: ({ total }) => formatCount(total, t) },
    {
      title: t.batches.succeeded,
      numeric: true,
      cell: ({ succeeded }) => formatCount(succeeded, t),
    },
    { title: t.batches.failed, numeric: true, cell: ({ failed }) => formatCount(failed, t) },
    {
      title: t.keys.created,
      cell: ({ createdAt, expiresAt }) => (
        <>
          <Moment at={createdAt} />
          {expiresAt !== null && (
            <span class="second">
              {t.files.expires} <Moment at={expiresAt} />
            </span>
          )}
        </>
      ),
    },
    {
      title: t.common.actions,
      cell: (row) => (
        <span class="actions">
          {row.isRunning && (
            <Button kind="quiet" onClick={() => onAsk({ kind: "cancel", row })}>
              {t.common.cancel}
            </Button>
          )}
          {row.results !== null && (
            <Button kind="quiet" onClick={() => onSave(row)}>
              {t.batches.download}
            </Button>
          )}
          {(row.failures !== null || row.refused.length > 0) && (
            <Button kind="quiet" onClick={() => onAsk({ kind: "failures", row })}>
              {t.batches.failures}
            </Button>
          )}
        </span>
      ),
    },
  ];
  return <Table name={t.views.batches} columns={columns} rows={rows} id={({ id }) => id} />;
}

function Failures({ row, onClose }: { row: BatchRow; onClose: () => void }) {
  const t = useTexts();
  const loaded = useLoad(
    async (signal, show): Promise<FailedLines> => {
      if (row.failures === null) return { lines: row.refused, isCut: false };
      return await readFailedLines(await inferenceStream(row.failures, signal), show);
    },
    [row.id],
  );
  return (
    <Dialog title={t.batches.failuresOf(row.id)} onClose={onClose}>
      <div class="stack">
        <Section loaded={loaded}>
          {({ lines, isCut }) => (
            <>
              <Table
                name={t.batches.failures}
                rows={lines}
                id={({ line }) => line}
                columns={[
                  { title: t.batches.line, heads: true, cell: ({ line }) => line },
                  {
                    title: t.batches.reason,
                    long: true,
                    cell: ({ code, message }) => (
                      <>
                        {code}
                        <span class="second">{message}</span>
                      </>
                    ),
                  },
                ]}
              />
              {isCut && (
                <p class="hint">{t.batches.cut(formatCount(MOST_LINES, t), formatBytes(MOST_BYTES, t))}</p>
              )}
            </>
          )}
        </Section>
        <div class="row end">
          <Button kind="primary" onClick={onClose}>
            {t.common.close}
          </Button>
        </div>
      </div>
    </Dialog>
  );
}
