import { NotFoundError, sql, UniqueIntegrityConstraintViolationError } from "slonik";
import { expect, test } from "vitest";
import { createLogger, logRequest } from "./log.ts";

/** What one call of the logger writes, without the time. */
function written(...logged: [object, string]): unknown {
  const lines: string[] = [];
  createLogger("info", { write: (line: string) => void lines.push(line) }).info(...logged);
  const { time: _time, ...line } = JSON.parse(lines.join("")) as Record<string, unknown>;
  return line;
}

test("a line is one JSON object with the level by name", () => {
  expect(written({ id: "req_1", status: 200 }, "request")).toEqual({
    level: "info",
    id: "req_1",
    status: 200,
    msg: "request",
  });
});

test("keys, headers and bodies are taken out on the first two levels", () => {
  const secret = "sk-svc-secret";
  const shown = written(
    {
      id: 1,
      key: secret,
      headers: { a: secret },
      call: { body: secret, authorization: secret, path: "/v1" },
    },
    "x",
  );
  expect(JSON.stringify(shown)).not.toContain(secret);
  expect(shown).toMatchObject({ id: 1, key: "[removed]", call: { body: "[removed]", path: "/v1" } });
});

test("so are those that an error carries", () => {
  const secret = "sk-svc-secret";
  const error = Object.assign(new Error("no answer"), { headers: { authorization: secret }, status: 502 });
  const shown = written({ err: error }, "failed");
  expect(JSON.stringify(shown)).not.toContain(secret);
  expect(shown).toMatchObject({ err: { message: "no answer", headers: "[removed]", status: 502 } });
});

test("what a statement was about does not stand in the log with its error", () => {
  const query = sql.unsafe`select ${"Olga Owner"}`;
  const refused = Object.assign(new Error("duplicate key"), {
    detail: "Key (name)=(Olga Owner) already exists.",
  });
  const lines: string[] = [];
  const log = createLogger("info", { write: (line) => void lines.push(line) });
  for (const err of [new NotFoundError("none", query), new UniqueIntegrityConstraintViolationError(refused)])
    log.error({ err }, "failed");
  expect(lines).toHaveLength(2);
  expect(lines.join("")).not.toContain("Olga");
});

test("what is logged is not changed", () => {
  const logged = { key: "k", inner: { body: "b" } };
  written(logged, "x");
  expect(logged).toEqual({ key: "k", inner: { body: "b" } });
});

test("a request's line is the same that the logger would write, and there is none below its level", () => {
  const lines: string[] = [];
  const destination = { write: (line: string) => void lines.push(line) };
  const request = { id: "req_1", path: '/v1/"x"', status: 200, model: undefined };
  const parsed = () => lines.splice(0).map((line) => ({ ...JSON.parse(line), time: "now" }) as unknown);
  const log = createLogger("info", destination);
  log.warn(request, "request");
  const [expected] = parsed();
  const before = Date.now();
  logRequest(log, "warn", request);
  const { time } = JSON.parse(lines[0] ?? "") as { time: string };
  expect(Date.parse(time)).toBeGreaterThanOrEqual(before);
  expect(parsed()).toEqual([expected]);
  logRequest(createLogger("error", destination), "warn", request);
  expect(lines).toEqual([]);
});
