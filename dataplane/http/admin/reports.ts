/** The usage and cost reports of the admin API, and the export of costs; what they show stands in `reports/`. */
import { Readable } from "node:stream";
import type { FastifyInstance } from "fastify";
import type { DatabasePool } from "slonik";
import { completionsUsage } from "../../reports/completions-usage.ts";
import { costReport } from "../../reports/cost-report.ts";
import { costs } from "../../reports/costs.ts";
import { exportCosts } from "../../reports/focus/export.ts";
import { messagesUsage } from "../../reports/messages-usage.ts";
import type { ReportQuery } from "../../reports/parameters.ts";
import { callerOf, type HttpServices, type Routes } from "../route.ts";

const reports = {
  "/v1/organizations/usage_report/messages": messagesUsage,
  "/v1/organizations/cost_report": costReport,
  "/v1/organization/usage/completions": completionsUsage,
  "/v1/organization/costs": costs,
} as const;

export const reportRoutes =
  (pool: DatabasePool): Routes =>
  (app: FastifyInstance, { clock }: HttpServices) => {
    for (const [path, report] of Object.entries(reports)) {
      app.get(path, { config: { access: "admin" } }, (request) =>
        report(pool, callerOf(request).organizationId, request.query as ReportQuery, clock.now()),
      );
    }
    app.get("/v1/organization/costs/export", { config: { access: "admin" } }, (request, reply) => {
      const { organizationId } = callerOf(request);
      const { type, name, contents } = exportCosts(pool, organizationId, request.query as ReportQuery);
      return reply
        .headers({
          "content-type": type,
          "content-disposition": `attachment; filename="${name}"`,
          "x-content-type-options": "nosniff",
        })
        .send(Readable.from(contents, { objectMode: false }));
    });
  };
