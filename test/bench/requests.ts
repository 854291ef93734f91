/**
 * A page of requests over ten million of them (rule 14.2): one organization with all of them over a week, and how long the
 * first page, a later one and each filter take. `npm run bench -- requests`; with a number, that many.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sql } from "slonik";
import { migrate } from "../../dataplane/store/migrate.ts";
import { openPostgres } from "../../dataplane/store/postgres.ts";
import { findRequest, listRequests, type RequestFilter } from "../../dataplane/requests/read-records.ts";
import { startPostgres } from "../../hack/postgres.ts";

const ROWS = Number(process.argv[2] ?? 10_000_000);
const DAYS = 7;
const TIMES = 40;
const GOAL_MS = 300;

const say = (line: string) => process.stderr.write(`bench: ${line}\n`);
const folder = await mkdtemp(join(tmpdir(), "gapura-requests-"));
const server = await startPostgres({ folder: join(folder, "postgres"), durable: false, say });
try {
  await migrate(server.url());
  const pool = await openPostgres(server.url(), { statementTimeoutMs: 1_200_000, onError: () => {} });
  await pool.query(sql.unsafe`select make_request_partitions(now() - interval '8 days')`);
  for (let back = 3; back <= DAYS; back += 1) {
    const day = new Date(Date.now() - back * 86_400_000).toISOString().slice(0, 10);
    const next = new Date(Date.now() - (back - 1) * 86_400_000).toISOString().slice(0, 10);
    await pool.query(sql.unsafe`
      create table ${sql.identifier([`request_records_${day.replaceAll("-", "_")}`])} partition of request_records
      for values from (${sql.literalValue(`${day} 00:00:00+00`)}) to (${sql.literalValue(`${next} 00:00:00+00`)})
    `);
  }
  const began = performance.now();
  const STEP = 500_000;
  for (let from = 0; from < ROWS; from += STEP) {
    // As they come: one in a thousand fails, one key has half of them, one has a dozen.
    await pool.query(sql.unsafe`
      insert into request_records (id, accepted_at, organization_id, project_id, key_id, dialect, path, model, upstream,
        status, error, error_code, streamed, first_byte_ms, duration_ms, tries, input_tokens, output_tokens, credit_micros)
      select 'req_' || substr(md5(n::text), 1, 24), now() - (n * ${(DAYS - 1) * 86_400} / ${ROWS}::float8) * interval '1 second',
        'org_a', 'proj_' || n % 3, case when n % ${Math.ceil(ROWS / 12)} = 0 then 'apikey_rare' when n % 2 = 0 then 'apikey_0' else 'apikey_' || n % 99 end,
        'chat', 'relay', 'm' || n % 20, 'primary', case when n % 1000 = 0 then 502 else 200 end,
        case when n % 1000 = 0 then 'upstream_error' end, case when n % 1000 = 0 then 'upstream_error' end, false, 120, 900,
        '[{"upstream": "primary", "status": 200, "ms": 880}]', 900, 200, 14784
      from generate_series(${from}::bigint, ${Math.min(ROWS, from + STEP) - 1}::bigint) as n
    `);
  }
  await pool.query(sql.unsafe`analyze request_records`);
  say(`${ROWS} rows in ${Math.round((performance.now() - began) / 1000)} s`);
  const all: RequestFilter = {
    organizationId: "org_a",
    keyId: null,
    projectId: null,
    model: null,
    status: null,
    code: null,
    from: Date.now() - DAYS * 86_400_000,
    to: null,
  };
  const page = { limit: 100, order: "desc", cursor: null } as const;
  const middle = await listRequests(pool, { ...all, to: Date.now() - 3 * 86_400_000 }, { ...page, limit: 1 });
  const id = middle?.items[0]?.id ?? "";
  const asked: readonly (readonly [string, () => Promise<unknown>])[] = [
    ["first page", () => listRequests(pool, all, page)],
    ["page of 1000", () => listRequests(pool, all, { ...page, limit: 1000 })],
    ["page in the middle", () => listRequests(pool, all, { ...page, cursor: { side: "after", id } })],
    ["a busy key", () => listRequests(pool, { ...all, keyId: "apikey_0" }, page)],
    ["a rare key", () => listRequests(pool, { ...all, keyId: "apikey_rare" }, page)],
    ["a model", () => listRequests(pool, { ...all, model: "m7" }, page)],
    ["a project", () => listRequests(pool, { ...all, projectId: "proj_1" }, page)],
    ["failed", () => listRequests(pool, { ...all, status: 502 }, page)],
    ["a code of a model", () => listRequests(pool, { ...all, code: "upstream_error", model: "m0" }, page)],
    ["none", () => listRequests(pool, { ...all, code: "timeout" }, page)],
    ["by its id", () => findRequest(pool, id)],
  ];
  for (const [name, ask] of asked) {
    const times: number[] = [];
    for (let time = 0; time < TIMES; time += 1) {
      const start = performance.now();
      await ask();
      times.push(performance.now() - start);
    }
    times.sort((one, other) => one - other);
    const p95 = times[Math.floor(TIMES * 0.95)] ?? Number.NaN;
    process.stdout.write(
      `${name.padEnd(20)} p50 ${times[TIMES / 2]?.toFixed(1)} ms, p95 ${p95.toFixed(1)} ms${p95 > GOAL_MS ? ", too slow" : ""}\n`,
    );
    if (p95 > GOAL_MS) process.exitCode = 1;
  }
  await pool.end();
} finally {
  await server.stop();
  await rm(folder, { recursive: true, force: true });
}
