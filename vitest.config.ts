import { defineConfig } from "vitest/config";

/**
 * Files with stores that run at once. Those that kill processes want two cores for two; without them, as `npm test` runs
 * (hack/test.ts), most of their time is waiting.
 */
const storeWorkers = Number(process.env["TEST_STORE_WORKERS"] ?? 2);
/** Unit tests wait for time-outs half of their time; beside others fewer run at once, or these would starve. */
const unitWorkers = Number(process.env["TEST_UNIT_WORKERS"] ?? 4);

/**
 * Six kinds of test, told apart by where they stand:
 *   unit         beside the code, and test/*.test.ts, test/golden: no store, no network but loopback, seconds. They share
 *                the modules of their worker, which spares loading them 200 times: what one file changes, others see.
 *                What starts a program there is called *.program.test.ts, and what takes long *.heavy.test.ts (hack/test.ts)
 *   isolated     *.isolated.test.ts, unit tests that replace modules: each file has a worker of its own
 *   integration  test/integration, chaos, abuse and *.store.test.ts: real Postgres and Redis, started once by a global set-up
 *   operator     test/operator: a real kube-apiserver and etcd, Postgres and Redis
 *   console      test/console: the product as a user starts it, and Debian's Chromium on its page
 *   charts       test/charts: helm's output, also before a real kube-apiserver
 */
export default defineConfig({
  test: {
    // Only what hangs: on a starved machine the longest take some ten times as long as they work.
    testTimeout: 60_000,
    hookTimeout: 120_000,
    // Of the global set-ups: stores are stopped, and the answers of the integration tests are judged.
    teardownTimeout: 60_000,
    // A machine that is busy with other files may need seconds for what takes milliseconds; a bound that is promised is
    // given to the one `expect.poll` that judges it.
    expect: { poll: { timeout: 10_000 } },
    // Of a file whose tests run at once because they wait.
    maxConcurrency: 10,
    projects: [
      {
        test: {
          name: "unit",
          // Without an `exclude` of its own, to which vitest's `--exclude` (hack/test.ts) would add nothing.
          include: [
            "{dataplane,operator,hack}/**/!(*.store|*.isolated).test.ts",
            "test/!(*.isolated).test.ts",
            "test/{golden,fakes,bench,grammar,vendor,conformance,mutation,soak}/**/!(*.isolated).test.ts",
          ],
          isolate: false,
          // Node loads them as it loads the programs, from compiled code; Vite would look up each import at each use.
          experimental: { viteModuleRunner: false, nodeLoader: false },
          unstubEnvs: true,
          maxWorkers: unitWorkers,
        },
      },
      {
        test: {
          name: "isolated",
          include: ["{dataplane,operator,hack,test}/**/*.isolated.test.ts"],
          maxWorkers: unitWorkers,
        },
      },
      {
        test: {
          name: "integration",
          include: [
            "test/{integration,chaos,abuse}/**/*.test.ts",
            "{dataplane,operator,hack}/**/*.store.test.ts",
          ],
          globalSetup: ["test/integration/stores.ts", "test/vendor/judge-tapped.ts"],
          setupFiles: ["test/vendor/tap.ts"],
          hookTimeout: 180_000,
          // Each file has databases, Redis servers and ports of its own, but shares its worker's modules.
          isolate: false,
          unstubEnvs: true,
          maxWorkers: storeWorkers,
          sequence: { groupOrder: 1 },
        },
      },
      {
        test: {
          name: "operator",
          include: ["test/operator/**/*.test.ts"],
          globalSetup: ["test/operator/apiserver.ts", "test/integration/stores.ts"],
          testTimeout: 120_000,
          hookTimeout: 900_000,
          // They wait more than they work, and each has a namespace of its own; four would make their API server slow.
          maxWorkers: Math.min(storeWorkers, 3),
          sequence: { groupOrder: 1 },
        },
      },
      {
        test: {
          name: "console",
          include: ["test/console/**/*.test.ts"],
          globalSetup: ["test/console/world.ts"],
          hookTimeout: 180_000,
          fileParallelism: false,
        },
      },
      {
        test: {
          name: "charts",
          include: ["test/charts/**/*.test.ts"],
          globalSetup: ["test/operator/apiserver.ts"],
          testTimeout: 120_000,
          hookTimeout: 300_000,
        },
      },
    ],
  },
});
