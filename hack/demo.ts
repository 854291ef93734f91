/**
 * The servers that the demo manifests point at: a scripted upstream for the three dialects, a search engine, posts and pages,
 * all on one port of this machine.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import { join } from "node:path";
import { findManifests } from "../operator/folder/files.ts";
import { startUpstream, type FakeUpstream } from "../test/fakes/upstream/server.ts";
import type { Say } from "./cache.ts";
import { followManifests, readIfThere } from "./manifest-copy.ts";

/** The address in `hack/demo/*.yaml`. */
const DEMO_PORT = 9400;
const DEMO_ADDRESS = `http://127.0.0.1:${DEMO_PORT}`;
/** Pause between events: so that a stream can be watched, and a hundred of them take little over a second. */
const PACE_MS = 12;

export interface Demo {
  /** The folder of manifests to serve from. */
  readonly manifests: string;
  close(): Promise<void>;
}

/**
 * Starts the demo's servers, unless no manifest names the demo's address. When the port is taken (a second `npm start`) another
 * one is used, and the manifests are served from a copy that names it.
 */
export async function startDemo(manifests: string, data: string, say: Say): Promise<Demo> {
  if (!mentions(manifests, data, DEMO_ADDRESS)) return { manifests, close: async () => {} };
  say("starting the demo's models");
  let upstream: FakeUpstream;
  try {
    upstream = await startDemoUpstream({ port: DEMO_PORT });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EADDRINUSE") throw error;
    upstream = await startDemoUpstream({});
  }
  if (upstream.port === DEMO_PORT) return { manifests, close: () => upstream.close() };

  const copy = join(data, "manifests");
  say(`port ${DEMO_PORT} is taken: the demo's models are at ${upstream.url}, see the manifests in ${copy}`);
  const edit = (text: string) =>
    text.replaceAll(DEMO_ADDRESS, upstream.url).replaceAll(`[${DEMO_PORT}]`, `[${upstream.port}]`);
  const followed = followManifests({ from: manifests, to: copy, data, edit, say });
  return {
    manifests: copy,
    close: async () => {
      followed.close();
      await upstream.close();
    },
  };
}

/** The models, the search engine, the posts and the pages alone. */
export function startDemoUpstream(at: {
  readonly host?: string;
  readonly port?: number;
}): Promise<FakeUpstream> {
  return startUpstream({
    paceMs: PACE_MS,
    createdAt: Math.floor(Date.now() / 1000),
    idPrefix: `${Date.now().toString(36)}x`,
    elsewhere: answerWeb,
    ...at,
  });
}

/** Whether a manifest of the folder, the data folder left out, holds the text. */
export function mentions(folder: string, data: string, text: string): boolean {
  return findManifests(folder, { except: data }).some(({ path }) => readIfThere(path)?.includes(text));
}

const pages: Readonly<Record<string, { readonly title: string; readonly text: string }>> = {
  "/pages/gapura": {
    title: "Gapura, the Javanese gate",
    text: "A gapura is a gateway of Javanese and Balinese buildings. A split one, candi bentar, stands at the entrance; a roofed one, paduraksa, leads further in.",
  },
  "/pages/gateway": {
    title: "What an inference gateway does",
    text: "An inference gateway stands between applications and model providers: one address, one key and one bill for every model, whoever makes it.",
  },
  "/pages/weather": {
    title: "Weather in Indonesia",
    text: "Indonesia has a wet season from November to March and a dry one from May to September. The temperature stays near 28 °C all year.",
  },
};

/** A search engine in SearXNG's form, posts in X's form, and three pages. False: not a path of ours. */
function answerWeb(request: IncomingMessage, response: ServerResponse): boolean {
  const url = new URL(request.url ?? "/", `http://${request.headers.host ?? "127.0.0.1"}`);
  const page = Object.hasOwn(pages, url.pathname) ? pages[url.pathname] : undefined;
  if (page !== undefined) {
    response.writeHead(200, { "content-type": "text/html; charset=utf-8" });
    response.end(
      `<!doctype html><html><head><title>${page.title}</title></head><body><article><h1>${page.title}</h1><p>${page.text}</p></article></body></html>`,
    );
    return true;
  }
  if (url.pathname === "/robots.txt") {
    response.writeHead(200, { "content-type": "text/plain" });
    response.end("User-agent: *\nAllow: /\n");
    return true;
  }
  if (url.pathname === "/search") {
    sendJson(response, { query: url.searchParams.get("q"), results: searchResults(url) });
    return true;
  }
  if (url.pathname.startsWith("/2/tweets/search/")) {
    sendJson(response, posts(url));
    return true;
  }
  return false;
}

/** Pages that share words with the query first. */
function searchResults(url: URL): object[] {
  const words = (url.searchParams.get("q") ?? "").toLowerCase().match(/\p{L}{4,}/gu) ?? [];
  const score = (text: string) => words.filter((word) => text.toLowerCase().includes(word)).length;
  return Object.entries(pages)
    .map(([path, { title, text }]) => ({ url: `${url.origin}${path}`, title, content: text }))
    .sort((left, right) => score(right.title + right.content) - score(left.title + left.content));
}

function posts(url: URL): object {
  const query = url.searchParams.get("query") ?? "";
  return {
    data: [
      {
        id: "1",
        text: `Somebody says about ${query}: a good gate is open.`,
        author_id: "7",
        created_at: "2026-11-20T08:00:00.000Z",
      },
      {
        id: "2",
        text: `More on ${query}: and it counts who walks through.`,
        author_id: "8",
        created_at: "2026-11-19T08:00:00.000Z",
      },
    ],
    includes: {
      users: [
        { id: "7", username: "gapura_demo", name: "Gapura Demo" },
        { id: "8", username: "candi_bentar", name: "Candi Bentar" },
      ],
    },
    meta: { result_count: 2 },
  };
}

function sendJson(response: ServerResponse, value: unknown): void {
  response.writeHead(200, { "content-type": "application/json" });
  response.end(JSON.stringify(value));
}
