/** The usage and cost reports of the admin API, and the export of costs; `reports/` makes their contents. */
import type { FastifyInstance } from "fastify";
import { completionsUsage } from "../../reports/completions-usage.ts";
import { costReport } from "../../reports/cost-report.ts";
import { costs } from "../../reports/costs.ts";
import { exportCosts } from "../../reports/focus/export.ts";
import { messagesUsage } from "../../reports/messages-usage.ts";
import type { ReportQuery } from "../../reports/parameters.ts";
import type { Reads } from "../../store/reads.ts";
import { callerOf, type HttpServices, type Routes } from "../route.ts";
import { streamed } from "../streamed.ts";
import type { AnswerTurns } from "../answer-turns.ts";

const reports = {
  "/v1/organizations/usage_report/messages": messagesUsage,
  "/v1/organizations/cost_report": costReport,
  "/v1/organization/usage/completions": completionsUsage,
  "/v1/organization/costs": costs,
} as const;

export const reportRoutes =
  (reads: Reads, turns: AnswerTurns): Routes =>
  (app: FastifyInstance, { clock }: HttpServices) => {
    for (const [path, report] of Object.entries(reports)) {
      const answer = turns.json(async (request) => {
        const { organizationId } = callerOf(request);
        const from = await reads.of(organizationId);
        return await report(from, organizationId, request.query as ReportQuery, clock.now());
      });
      app.get(path, { config: { access: "admin" } }, answer);
    }
    app.get("/v1/organization/costs/export", { config: { access: "admin" } }, async (request, reply) => {
      const { organizationId } = callerOf(request);
      const from = await reads.of(organizationId);
      const { type, name, contents } = exportCosts(
        from,
        organizationId,
        request.query as ReportQuery,
        turns.parts(request, reply),
      );
      return reply
        .headers({
          "content-type": type,
          "content-disposition": `attachment; filename="${name}"`,
          "x-content-type-options": "nosniff",
        })
        .send(streamed(request, reply, () => contents));
    });
  };
