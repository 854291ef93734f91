/**
 * Recorded exchanges: `NAME.request.json` (`{method?, path?, body}`) beside `NAME.response.json`
 * (`{status?, headers?, body}`; `body` is JSON, or a string of exact bytes such as a whole event stream). A request
 * is answered by the recording with the same path and an equal body (key order aside), else by the next unused one
 * of its path.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import type { LoggedRequest } from "./request-log.ts";
import type { Step } from "./script.ts";

export interface Replay {
  find(request: LoggedRequest): Step | undefined;
}

interface Recording {
  readonly name: string;
  readonly path: string | null;
  readonly body: unknown;
  readonly step: Step;
}

/** @throws Error when a request has no response beside it. */
export function readReplay(folder: string): Replay {
  const recordings = readdirSync(folder)
    .filter((file) => file.endsWith(".request.json"))
    .sort()
    .map((file) => readRecording(folder, file.slice(0, -".request.json".length)));
  const used = new Set<string>();
  return {
    find: (request) => {
      const path = request.path.split("?")[0];
      const candidates = recordings.filter((recording) => recording.path === null || recording.path === path);
      const body = parse(request.text);
      const found =
        candidates.find((recording) => isDeepStrictEqual(recording.body, body)) ??
        candidates.find(({ name }) => !used.has(name));
      if (found !== undefined) used.add(found.name);
      return found?.step;
    },
  };
}

function readRecording(folder: string, name: string): Recording {
  const read = (kind: string) =>
    JSON.parse(readFileSync(join(folder, `${name}.${kind}.json`), "utf8")) as {
      readonly path?: string;
      readonly status?: number;
      readonly headers?: Readonly<Record<string, string>>;
      readonly body?: unknown;
    };
  const request = read("request");
  const response = read("response");
  const body = typeof response.body === "string" ? response.body : JSON.stringify(response.body ?? null);
  return {
    name,
    path: request.path ?? null,
    body: request.body,
    step: {
      raw: { status: response.status ?? 200, body },
      ...(response.headers === undefined ? {} : { headers: response.headers }),
    },
  };
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}
