/** The vendors' admin APIs, as far as an admin key was given. */
import { Skipped, type Check } from "../check.ts";
import { fieldsIn, hello } from "../prompts.ts";

export const admin: readonly Check[] = [
  {
    name: "admin-organization",
    subject: "admin",
    rule: "official",
    dialects: ["messages"],
    needs: "admin",
    says: "`GET /v1/organizations/me` tells the organization of the admin key.",
    run: async (probe) => {
      const headers = { "x-api-key": "{admin-key}", "anthropic-version": "2023-06-01" };
      const answer = await probe.ask({ method: "GET", path: "/v1/organizations/me", headers });
      if (answer.status === 404) throw new Skipped("no such path");
      const { id, type, name } = fieldsIn(answer);
      const whole = typeof id === "string" && type === "organization" && typeof name === "string";
      probe.expect(whole, `status ${answer.status}: ${answer.text.slice(0, 160)}`, answer);
    },
  },
  {
    name: "admin-projects",
    subject: "admin",
    rule: "official",
    dialects: ["chat", "responses"],
    needs: "admin",
    says: "`GET /v1/organization/projects` lists projects.",
    run: async (probe) => {
      const headers = { authorization: "Bearer {admin-key}" };
      const answer = await probe.ask({ method: "GET", path: "/v1/organization/projects", headers });
      if (answer.status === 404) throw new Skipped("no such path");
      const { object, data } = fieldsIn(answer);
      const whole = object === "list" && Array.isArray(data);
      probe.expect(whole, `status ${answer.status}: ${answer.text.slice(0, 160)}`, answer);
    },
  },
  {
    name: "admin-key-asks-nothing",
    subject: "admin",
    rule: "ours",
    needs: "admin",
    says: "An admin key asks no model: 401.",
    run: async (probe) => {
      const asked = probe.form.question({ model: probe.model, ...probe.form.body(hello) });
      const { "x-api-key": _, ...own } = asked.headers;
      const answer = await probe.ask({ ...asked, headers: { ...own, authorization: "Bearer {admin-key}" } });
      probe.expect(answer.status === 401, `status ${answer.status}, not 401`, answer);
    },
  },
];
