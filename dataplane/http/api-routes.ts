/** Everything that the service answers over HTTP: the one list that the program and the tests of the whole use. */
import type { DatabasePool } from "slonik";
import type { BatchContext } from "../batches/context.ts";
import type { Holds } from "../billing/holds/holds.ts";
import type { Keys } from "../identity/keys.ts";
import type { FileStore } from "../files/file-store.ts";
import type { WorkerPool } from "../lib/worker-pool.ts";
import type { Reads } from "../store/reads.ts";
import type { Serve } from "../inference/call.ts";
import type { ConfigStatus, Source } from "../config/schema.ts";
import { AnswerTurns, listWaiting, readingWith } from "./answer-turns.ts";
import { configurationRoutes } from "./admin/configuration.ts";
import { organizationKeyRoutes } from "./admin/organization-keys.ts";
import { creditRoutes } from "./admin/credits.ts";
import { projectKeyRoutes } from "./admin/project-keys.ts";
import { projectRoutes, type ProjectNeeds } from "./admin/projects.ts";
import { requestRecordRoutes } from "./admin/request-records.ts";
import { reportRoutes } from "./admin/reports.ts";
import { userRoutes } from "./admin/users.ts";
import { consoleSignInRoutes } from "./console-sign-in.ts";
import { consoleRoutes, type ConsoleFiles } from "./console.ts";
import { openApiRoutes } from "./openapi/routes.ts";
import { batchRoutes } from "./routes/batches.ts";
import { countTokensRoutes, type CountTokensNeeds } from "./routes/count-tokens.ts";
import { keyRoutes } from "./routes/key.ts";
import { fileRoutes } from "./routes/files.ts";
import { inferenceRoutes } from "./routes/inference.ts";
import { messageBatchRoutes } from "./routes/message-batches.ts";
import { modelRoutes } from "./routes/models.ts";
import type { Routes } from "./route.ts";

export interface ApiParts {
  readonly pool: DatabasePool;
  /** Where lists and reports are read. */
  readonly reads: Reads;
  readonly holds: Holds;
  readonly keys: Keys;
  readonly directory: ProjectNeeds["directory"];
  readonly files: FileStore;
  readonly context: BatchContext;
  readonly serve: Serve;
  readonly countUpstream: CountTokensNeeds["ask"];
  readonly upstreams: CountTokensNeeds["upstreams"];
  /** The threads that work on large bodies; null: the main thread does. */
  readonly large: WorkerPool | null;
  readonly sealerOf: CountTokensNeeds["sealerOf"];
  /** The address that clients use, without a slash at its end. */
  readonly publicUrl: () => string;
  /** How long request records are kept. */
  readonly requestRetentionMs: number;
  /** Objects of a snapshot that this process has taken over. */
  readonly acknowledged: (objects: readonly Source[]) => ConfigStatus["objects"];
  /** Absent where no console is served. */
  readonly consoleFiles?: ConsoleFiles;
}

export function apiRoutes(parts: ApiParts): readonly Routes[] {
  const { pool, reads, holds, keys, files, context, serve, countUpstream, large, sealerOf, publicUrl } =
    parts;
  const { directory, requestRetentionMs, acknowledged, consoleFiles, upstreams } = parts;
  const reading = readingWith(pool.configuration.maxPoolSize ?? 1);
  const turns = new AnswerTurns(reading);
  // Apart: no list of files or batches waits for a report where there are connections for both.
  const lists = new AnswerTurns(reading, listWaiting(holds.preflight));
  return [
    modelRoutes,
    keyRoutes(keys, { pool, holds }),
    countTokensRoutes({ ask: countUpstream, upstreams, pool: large, sealerOf, files }),
    inferenceRoutes({ meter: holds, serve }),
    fileRoutes(files, lists),
    messageBatchRoutes(context, lists, publicUrl),
    batchRoutes(context, lists),
    organizationKeyRoutes({ pool, reads, turns, keys, holds }),
    projectRoutes({ pool, reads, turns, holds, directory }),
    projectKeyRoutes({ pool, reads, turns, keys, holds }),
    creditRoutes({ pool, holds, limitsOf: (id) => files.limitsOf(id) }),
    userRoutes({ pool, reads, turns, holds }),
    consoleSignInRoutes,
    reportRoutes(reads, turns),
    requestRecordRoutes({ reads, turns, retentionMs: requestRetentionMs }),
    configurationRoutes(acknowledged),
    openApiRoutes,
    ...(consoleFiles === undefined ? [] : [consoleRoutes(consoleFiles)]),
  ];
}
