/**
 * Vitest's set-up of the integration tests, in each worker, which add to one file: whatever a test fetches from the gateway, itself or through an SDK, is kept
 * for the judge, each shape once, and judged when all tests are over (`judge-tapped.ts`).
 */
import { appendFileSync } from "node:fs";
import { afterAll, inject } from "vitest";
import { type Dialect, dialectPath, dialects } from "../../dataplane/dialects/dialect.ts";
import { type Seen, seenIn, shapeOf } from "./seen.ts";
import { UNJUDGED_AGENT } from "./unjudged.ts";

/** Of one answer; what is longer is of a test about length. */
const MOST_KEPT = 1024 * 1024;

const shapes = new Set<string>();
const kept: string[] = [];
const file = inject("tappedAnswers");

function keep(seen: readonly Seen[]): void {
  for (const one of seen) {
    const shape = `${one.type} ${shapeOf(one.value)}`;
    if (shapes.has(shape)) continue;
    shapes.add(shape);
    kept.push(JSON.stringify(one));
  }
}

function dialectOf(path: string): Dialect | undefined {
  return dialects.find((dialect) => dialectPath[dialect] === path);
}

const plainFetch = globalThis.fetch;
globalThis.fetch = async (input, init) => {
  const response = await plainFetch(input, init);
  const { pathname } = new URL(response.url);
  const dialect = dialectOf(pathname);
  // Only what the gateway answers has such an id.
  const isOurs = response.headers.get("request-id")?.startsWith("req_") === true;
  const isUnjudged = new Headers(init?.headers).get("user-agent") === UNJUDGED_AGENT;
  if (dialect === undefined || !isOurs || isUnjudged || response.body === null) return response;
  const told = { dialect, status: response.status, type: response.headers.get("content-type") ?? "" };
  return tapped(response, response.body, (text, ended) => keep(seenIn({ ...told, text, ended })));
};

/** The same response, of which `over` is told what was read: all of it, or as far as its reader wanted it. */
function tapped(
  response: Response,
  body: ReadableStream<Uint8Array>,
  over: (text: string, ended: boolean) => void,
): Response {
  const reader = body.getReader();
  const chunks: Uint8Array[] = [];
  let length = 0;
  let told = false;
  const tell = (ended: boolean) => {
    if (told) return;
    told = true;
    if (length <= MOST_KEPT) over(Buffer.concat(chunks).toString("utf8"), ended);
  };
  const stream = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          const { done, value } = await reader.read();
          if (done) {
            tell(true);
            controller.close();
            return;
          }
          length += value.length;
          if (length <= MOST_KEPT) chunks.push(value);
          controller.enqueue(value);
        } catch (error) {
          tell(false);
          controller.error(error);
        }
      },
      cancel(reason) {
        tell(false);
        return reader.cancel(reason);
      },
    },
    { highWaterMark: 0 },
  );
  const { status, statusText, headers, url } = response;
  return Object.defineProperty(new Response(stream, { status, statusText, headers }), "url", { value: url });
}

afterAll(() => {
  if (kept.length > 0) appendFileSync(file, kept.map((line) => `${line}\n`).join(""));
  kept.length = 0;
});
