import { expect, test } from "vitest";
import { startTestServer } from "../../test/fakes/test-server.ts";
import type { Routes } from "./route.ts";
import { streamed } from "./streamed.ts";

test("a HEAD has the headers of what a GET streams, and reads nothing of it", async () => {
  let read = 0;
  async function* contents() {
    for (const piece of ["one ", "two"]) {
      read += 1;
      yield piece;
    }
  }
  const routes: Routes = (app) => {
    app.get("/v1/pieces", { config: { access: "none" } }, (request, reply) =>
      reply.type("text/csv").header("content-length", "7").send(streamed(request, contents)),
    );
  };
  await using server = await startTestServer([routes]);
  const told = ({ status, headers }: Response) => [
    status,
    headers.get("content-type"),
    headers.get("content-length"),
  ];
  const head = await server.fetch("/v1/pieces", { method: "HEAD" });
  expect(await head.text()).toBe("");
  const whole = await server.fetch("/v1/pieces");
  // The GET came later on, so that a HEAD would have read by now.
  expect([await whole.text(), read]).toEqual(["one two", 2]);
  expect(told(head)).toEqual(told(whole));
});
