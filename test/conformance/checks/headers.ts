/** Headers of requests and answers. */
import type { Check } from "../check.ts";
import { fieldsIn, hello, short } from "../prompts.ts";

/** Headers of the scripted upstream's account. */
const accountHeaders = ["set-cookie", "anthropic-organization-id", "openai-organization"];

export const headers: readonly Check[] = [
  {
    name: "request-id",
    subject: "headers",
    rule: "official",
    says: "Each answer has an id of its own in `request-id` (Messages) or `x-request-id`.",
    run: async (probe) => {
      const first = await probe.good(probe.form.body(hello));
      const second = await probe.sample({ ...probe.form.body(hello), model: "no-model-of-this-name" });
      const ids = [first, second].map((answer) => answer.headers.get(probe.form.requestIdHeader));
      probe.expect(ids[0] !== null, `no ${probe.form.requestIdHeader} in an answer`, first);
      probe.expect(ids[1] !== null, `no ${probe.form.requestIdHeader} in an error`, second);
      probe.expect(ids[0] !== ids[1] || ids[0] === null, "two answers have one id", second);
    },
  },
  {
    name: "request-id-in-error",
    subject: "headers",
    rule: "official",
    dialects: ["messages"],
    says: "An error's body repeats the id of its header.",
    run: async (probe) => {
      const answer = await probe.sample({ ...probe.form.body(hello), model: "no-model-of-this-name" });
      const id = answer.headers.get("request-id");
      const said = fieldsIn(answer)["request_id"];
      probe.expect(
        answer.status < 400 || id === null || said === id,
        `request_id is ${String(said)}`,
        answer,
      );
    },
  },
  {
    name: "bearer",
    subject: "headers",
    rule: "official",
    dialects: ["messages"],
    says: "The key is also taken from `Authorization: Bearer`, where the newest SDK sends it.",
    run: async (probe) => {
      const { "x-api-key": _, ...own } = probe.form.question({}).headers;
      const asked = probe.form.question({ model: probe.model, ...probe.form.body(hello) });
      const answer = await probe.ask({ ...asked, headers: { ...own, authorization: "Bearer {key}" } });
      probe.expect(answer.status === 200, `status ${answer.status}: ${short(answer.text)}`, answer);
    },
  },
  {
    name: "versions",
    subject: "headers",
    rule: "official",
    dialects: ["messages"],
    says: "Both live versions of the API are taken: 2023-06-01 and 2026-10-21.",
    run: async (probe) => {
      const more = { headers: { "anthropic-version": "2026-10-21" } };
      const answer = await probe.post(probe.form.body(hello), more);
      probe.expect(
        answer.status === 200,
        `2026-10-21: status ${answer.status}: ${short(answer.text)}`,
        answer,
      );
    },
  },
  {
    name: "unknown-beta",
    subject: "headers",
    rule: "ours",
    dialects: ["messages"],
    says: "An unknown value of `anthropic-beta` does no harm: clients send new ones before gateways know them.",
    run: async (probe) => {
      const more = { headers: { "anthropic-beta": "conformance-2099-01-01" } };
      const answer = await probe.post(probe.form.body(hello), more);
      probe.expect(answer.status === 200, `status ${answer.status}: ${short(answer.text)}`, answer);
    },
  },
  {
    name: "client-headers",
    subject: "headers",
    rule: "official",
    says: "What SDKs send about themselves does no harm: `x-stainless-*`, `Idempotency-Key`, a query.",
    run: async (probe) => {
      const more = {
        headers: { "x-stainless-lang": "js", "idempotency-key": "conformance", "user-agent": "conformance" },
        path: `${probe.form.path}?beta=true`,
      };
      const answer = await probe.post(probe.form.body(hello), more);
      probe.expect(answer.status === 200, `status ${answer.status}: ${short(answer.text)}`, answer);
    },
  },
  {
    name: "stream-headers",
    subject: "headers",
    rule: "ours",
    says: "A stream says `cache-control: no-cache` and `x-accel-buffering: no`, so that proxies pass it on at once.",
    run: async (probe) => {
      const answer = await probe.good(probe.form.body({ ...hello, stream: true }));
      const cache = answer.headers.get("cache-control");
      const buffering = answer.headers.get("x-accel-buffering");
      probe.expect(cache?.includes("no-cache") === true, `cache-control is ${cache}`, answer);
      probe.expect(buffering === "no", `x-accel-buffering is ${buffering}`, answer);
    },
  },
  {
    name: "account-hidden",
    subject: "headers",
    rule: "ours",
    needs: "scripted",
    says: "Headers of the provider's account do not reach clients.",
    run: async (probe) => {
      const answer = await probe.good(probe.form.body(hello));
      for (const name of accountHeaders)
        probe.expect(
          answer.headers.get(name)?.includes("secret") !== true,
          `${name} of the provider's account`,
          answer,
        );
    },
  },
];
