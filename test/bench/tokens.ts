/**
 * `npm run bench -- tokens`: what finding out who sent a token costs (rule 13.1), seen before and verified for the first time; both
 * have 50 groups. The directory stands on a real Postgres that has the person already. Prints microseconds, the median and the
 * greatest of ten rounds.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { DirectorySync } from "../../dataplane/identity/directory-sync.ts";
import { KeyDirectory } from "../../dataplane/identity/directory.ts";
import { TokenPeople } from "../../dataplane/identity/people.ts";
import { systemClock } from "../../dataplane/lib/clock.ts";
import { newId } from "../../dataplane/lib/ids.ts";
import { migrate } from "../../dataplane/store/migrate.ts";
import { openPostgres } from "../../dataplane/store/postgres.ts";
import { startPostgres } from "../../hack/postgres.ts";
import { FakeIssuer, signingKey } from "../fakes/issuer.ts";
import { sampleOrganization, sampleRouting, sampleSnapshot } from "../fakes/sample-snapshot.ts";

const ROUNDS = 10;
const SEEN = 50_000;
const FRESH = 300;

const say = (line: string) => process.stderr.write(`${line}\n`);
const folder = await mkdtemp(join(tmpdir(), "gapura-bench-tokens-"));
const postgres = await startPostgres({ folder: join(folder, "postgres"), durable: false, say });
await migrate(postgres.url());
const pool = await openPostgres(postgres.url(), { onError: () => {} });
const issuer = new FakeIssuer("https://login.test", Date.now);
const keys = { ES256: signingKey("EC", "ec"), RS256: signingKey("RSA", "rsa") } as const;
issuer.publish(keys.ES256, keys.RS256);
const groups = ["ml", ...Array.from({ length: 50 }, (_, n) => `group-${n}`)];

try {
  const snapshot = sampleSnapshot(
    sampleRouting(1, {
      organizations: [
        sampleOrganization("org_bench", {
          identity: {
            issuer: issuer.url,
            audiences: ["gapura"],
            jwksUrl: null,
            allowCidrs: [],
            allowPorts: [],
            rules: [{ claims: { groups: "ml" }, role: "member", project: "default" }],
          },
        }),
      ],
    }),
  );
  const directory = new KeyDirectory({ pool, clock: systemClock });
  const sync = new DirectorySync({
    pool,
    clock: systemClock,
    directory,
    newId,
    log: pino({ level: "silent" }),
    holds: { refresh: async () => {} },
  });
  await sync.copy(snapshot);
  await sync.stop();
  const people = new TokenPeople({
    snapshot: () => snapshot,
    directory,
    fetchJson: issuer.fetchJson,
    clock: systemClock,
  });
  for (const [alg, key] of Object.entries(keys)) {
    const token = (jti: number) => issuer.token(key, { groups, jti }, { alg });
    await people.find(token(-1));
    const rounds = { seen: [] as number[], verified: [] as number[] };
    for (let round = 0; round < ROUNDS; round += 1) {
      const fresh = Array.from({ length: FRESH }, (_, n) => token(round * FRESH + n));
      rounds.verified.push(await timed(fresh));
      rounds.seen.push(await timed(Array.from({ length: SEEN }, (_, n) => fresh[n % FRESH] ?? "")));
    }
    for (const [name, each] of Object.entries(rounds)) {
      const sorted = each.toSorted((one, other) => one - other);
      const [median = 0, most = 0] = [sorted[ROUNDS / 2], sorted.at(-1)];
      console.log(`${alg} ${name}: ${median.toFixed(1)} µs, at most ${most.toFixed(1)} µs a token`);
    }
  }
  console.log(`load ${loadavg()[0]?.toFixed(1)}`);

  /** Microseconds for each token, one after the other as a connection sends them. */
  async function timed(tokens: readonly string[]): Promise<number> {
    const begun = performance.now();
    for (const one of tokens) {
      const found = people.find(one);
      // What is known is there at once.
      if (found instanceof Promise) await found;
    }
    return ((performance.now() - begun) * 1_000) / tokens.length;
  }
} finally {
  await pool.end();
  await postgres.stop();
  await rm(folder, { recursive: true, force: true });
}
