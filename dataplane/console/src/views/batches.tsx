/** Batches of both kinds, as they go: what is done, what failed and why, their results. */
import { useState } from "preact/hooks";
import { everyPage } from "../api/client.ts";
import type { Batch, MessageBatch } from "../api/schema.ts";
import {
  inputFailures,
  MOST_BYTES,
  MOST_LINES,
  readFailedLines,
  type FailedLine,
  type FailedLines,
} from "../lib/batch-lines.ts";
import { download } from "../lib/csv.ts";
import { errorOf } from "../lib/error-of.ts";
import { useFilter } from "../lib/filters.ts";
import { useLoad } from "../lib/load.ts";
import { Badge, Button, Choice, Empty, Moment, Problem, Section } from "../parts/basics.tsx";
import { Dialog, FormDialog } from "../parts/dialog.tsx";
import { InferenceGate } from "../parts/inference-gate.tsx";
import { Table } from "../parts/table.tsx";
import { inference, inferenceFile, inferenceStream } from "../session.ts";
import { formatBytes, formatCount, useTexts } from "../texts/texts.ts";

const MOST_BATCHES = 2000;
const LIVE_MS = 3_000;

const kinds = ["messages", "openai"] as const;

/** Both kinds in one form. */
interface Row {
  readonly id: string;
  readonly kind: (typeof kinds)[number];
  readonly status: string;
  readonly isRunning: boolean;
  readonly total: number;
  readonly succeeded: number;
  readonly failed: number;
  readonly createdAt: string | number;
  readonly expiresAt: string | number | null;
  /** Where its results are; null before there are any. */
  readonly results: string | null;
  /** Where its failed lines are. */
  readonly failures: string | null;
  /** Why it ran nothing. */
  readonly refused: readonly FailedLine[];
}

const content = (file: string | null): string | null =>
  file === null ? null : `/v1/files/${encodeURIComponent(file)}/content`;

function messagesRow(batch: MessageBatch): Row {
  const { processing, succeeded, errored, canceled, expired } = batch.request_counts;
  const isRunning = batch.processing_status !== "ended";
  const results = isRunning ? null : `/v1/messages/batches/${encodeURIComponent(batch.id)}/results`;
  const failed = errored + canceled + expired;
  return {
    id: batch.id,
    kind: "messages",
    status: isRunning && batch.cancel_initiated_at !== null ? "cancelling" : batch.processing_status,
    isRunning,
    total: processing + succeeded + failed,
    succeeded,
    failed,
    createdAt: batch.created_at,
    expiresAt: batch.expires_at,
    results,
    failures: failed > 0 ? results : null,
    refused: [],
  };
}

const ends = ["completed", "failed", "expired", "cancelled"];

function openaiRow(batch: Batch): Row {
  const { total, completed, failed } = batch.request_counts;
  return {
    id: batch.id,
    kind: "openai",
    status: batch.status,
    isRunning: !ends.includes(batch.status),
    total,
    succeeded: completed,
    failed,
    createdAt: batch.created_at,
    // The contract has one window, of a day.
    expiresAt: batch.created_at + 86_400,
    results: content(batch.output_file_id),
    failures: content(batch.error_file_id),
    refused: inputFailures(batch.errors),
  };
}

/** Good is what ended with something to show. */
function badgeOf({ status, isRunning, succeeded, failed }: Row) {
  if (isRunning) return "warn";
  if (status === "cancelled") return "calm";
  return ["failed", "expired"].includes(status) || (failed > 0 && succeeded === 0) ? "bad" : "good";
}

async function readBatches(signal: AbortSignal): Promise<Row[]> {
  const [one, other] = await Promise.all([
    everyPage(MOST_BATCHES, (query) => inference("GET /v1/messages/batches", { query, signal })),
    everyPage(MOST_BATCHES, (query) => inference("GET /v1/batches", { query, signal })),
  ]);
  const at = ({ createdAt }: Row) =>
    typeof createdAt === "number" ? createdAt * 1000 : Date.parse(createdAt);
  return [...one.map(messagesRow), ...other.map(openaiRow)].sort((first, second) => at(second) - at(first));
}

type Asked = { readonly kind: "cancel" | "failures"; readonly row: Row };

export default function Batches() {
  return (
    <InferenceGate>
      <BatchList />
    </InferenceGate>
  );
}

function BatchList() {
  const t = useTexts();
  const status = useFilter("status");
  const [asked, setAsked] = useState<Asked | null>(null);
  const [problem, setProblem] = useState<Error | null>(null);
  const loaded = useLoad(readBatches, [], LIVE_MS);
  const save = async ({ id, results }: Row) => {
    setProblem(null);
    try {
      download(`${id}.jsonl`, await inferenceFile(results ?? ""), "application/jsonl");
    } catch (error) {
      setProblem(errorOf(error));
    }
  };
  return (
    <>
      <div class="filters">
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
      <Section loaded={loaded.value === null ? loaded : { ...loaded, busy: false }}>
        {(rows) => {
          const shown = rows.filter(
            ({ isRunning }) => status.value === "" || isRunning === (status.value === "running"),
          );
          if (shown.length === 0)
            return (
              <Empty title={status.value === "" ? t.batches.empty : t.batches.noMatch}>
                <p>{t.batches.emptyHint}</p>
              </Empty>
            );
          const isCut = kinds.some((kind) => rows.filter((row) => row.kind === kind).length >= MOST_BATCHES);
          return (
            <>
              <Table
                name={t.views.batches}
                rows={shown}
                id={({ id }) => id}
                columns={[
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
                          <Button kind="quiet" onClick={() => setAsked({ kind: "cancel", row })}>
                            {t.common.cancel}
                          </Button>
                        )}
                        {row.results !== null && (
                          <Button kind="quiet" onClick={() => void save(row)}>
                            {t.batches.download}
                          </Button>
                        )}
                        {(row.failures !== null || row.refused.length > 0) && (
                          <Button kind="quiet" onClick={() => setAsked({ kind: "failures", row })}>
                            {t.batches.failures}
                          </Button>
                        )}
                      </span>
                    ),
                  },
                ]}
              />
              {isCut && <p class="hint">{t.batches.newest(formatCount(MOST_BATCHES, t))}</p>}
            </>
          );
        }}
      </Section>
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

function Failures({ row, onClose }: { row: Row; onClose: () => void }) {
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
