/** What clients do beside inference: batches of both forms, files, keys and reports. What they saw is kept for the oracles. */
import { createHash, randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { dialectPath } from "../../dataplane/dialects/dialect.ts";
import { form } from "../integration/files-world.ts";
import { exchange, headers, inferenceBody, type ClientOptions, type Exchanging } from "./clients.ts";
import type { SeenBatch, SeenLine } from "./log.ts";
import { keys, models } from "./manifests.ts";
import { planeIndexes, type PlaneIndex } from "./plan.ts";
import { question } from "./provider.ts";

type Json = Record<string, unknown>;
const parse = (text: string): Json => JSON.parse(text) as Json;

const MOST_FILES = 40;
const MOST_ITEMS = 8;
const POLL_MS = 1_000;

export interface KeptFile {
  readonly id: string;
  readonly digest: string;
}

/** Jobs of one client; all of one soak share the lists. */
export class Jobs {
  readonly batches: SeenBatch[] = [];
  readonly files: KeptFile[] = [];
  /** How many of each were done. */
  readonly done = { batches: 0, items: 0, uploads: 0, downloads: 0, deletions: 0, keys: 0, reports: 0 };
  readonly #options: ClientOptions;

  constructor(options: ClientOptions) {
    this.#options = options;
  }

  #random(): number {
    return this.#options.random();
  }

  #plane(): PlaneIndex {
    return this.#random() < 0.5 ? 0 : 1;
  }

  #exchange(how: Omit<Exchanging, "plane"> & { readonly plane?: PlaneIndex }) {
    const { world, log } = this.#options;
    return exchange(world, log, { plane: this.#plane(), ...how });
  }

  #call(what: string, method: string, path: string, body?: unknown, more: Partial<Exchanging> = {}) {
    const admin = path.startsWith("/v1/organization");
    const init = {
      method,
      headers: headers(admin ? keys.admin : keys.inference),
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    };
    return this.#exchange({ what, path, init, ...more });
  }

  // Batches

  /** Makes a batch, follows it to its end, and reads its lines. @param stopped: waits no longer. */
  async batch(stopped: AbortSignal): Promise<void> {
    const made = this.#random() < 0.5 ? await this.#messageBatch() : await this.#fileBatch();
    if (made === null) return;
    this.batches.push(made);
    this.done.batches += 1;
    this.done.items += made.markers.size;
    if (this.#random() < 0.2) {
      await sleep(this.#random() * 1_500);
      await this.#cancel(made);
    }
    while (!stopped.aborted && !made.ended) {
      await this.look(made);
      if (!made.ended) await sleep(POLL_MS);
    }
  }

  #markers(): Map<string, number> {
    const count = 1 + Math.floor(this.#random() * MOST_ITEMS);
    return new Map(Array.from({ length: count }, (_, n) => [`i${n}`, this.#options.world.marker()] as const));
  }

  async #messageBatch(): Promise<SeenBatch | null> {
    const markers = this.#markers();
    const requests = Array.from(markers, ([custom_id, marker]) => ({
      custom_id,
      params: inferenceBody("messages", models[this.#random() < 0.5 ? "messages" : "chat"], marker, {}),
    }));
    const { outcome, text } = await this.#call("message batch", "POST", "/v1/messages/batches", { requests });
    if (outcome !== "complete") return null;
    return seenBatch(String(parse(text)["id"]), "messages", markers);
  }

  async #fileBatch(): Promise<SeenBatch | null> {
    const markers = this.#markers();
    const dialect = this.#random() < 0.5 ? "chat" : "responses";
    const url = dialectPath[dialect];
    const lines = Array.from(markers, ([custom_id, marker]) =>
      JSON.stringify({
        custom_id,
        method: "POST",
        url,
        body: inferenceBody(dialect, models[dialect], marker, {}),
      }),
    );
    const uploaded = await this.#upload(`${lines.join("\n")}\n`, "in.jsonl", { purpose: "batch" });
    if (uploaded === null) return null;
    const { outcome, text } = await this.#call("batch", "POST", "/v1/batches", {
      input_file_id: uploaded,
      endpoint: url,
      completion_window: "24h",
    });
    if (outcome !== "complete") return null;
    return seenBatch(String(parse(text)["id"]), "openai", markers);
  }

  async #cancel(batch: SeenBatch): Promise<void> {
    // It may be taken though its answer never comes; a batch that has ended refuses it (rule 4.5).
    batch.canceled = true;
    await this.#call("cancel", "POST", `${pathOf(batch)}/cancel`, {}, { fine: [400] });
  }

  /** Looks once whether it has ended, and if so reads its lines. */
  async look(batch: SeenBatch): Promise<void> {
    const { outcome, text } = await this.#call("batch's state", "GET", pathOf(batch));
    if (outcome !== "complete") return;
    const state = parse(text);
    const status = String(state["processing_status"] ?? state["status"]);
    if (!["ended", "completed", "failed", "expired", "cancelled"].includes(status)) return;
    const paths =
      batch.form === "messages"
        ? [`${pathOf(batch)}/results`]
        : ["output_file_id", "error_file_id"].flatMap((name) =>
            typeof state[name] === "string" ? [`/v1/files/${state[name]}/content`] : [],
          );
    const lines: SeenLine[] = [];
    for (const path of paths) {
      const results = await this.#call("batch's lines", "GET", path);
      if (results.outcome !== "complete") return;
      for (const line of results.text.split("\n").filter((one) => one !== ""))
        lines.push(readLine(parse(line)));
    }
    batch.lines = lines;
    batch.ended = true;
  }

  // Files

  async #upload(
    content: string | Buffer,
    name: string,
    fields: Record<string, string>,
  ): Promise<string | null> {
    const { outcome, text } = await this.#exchange({
      what: "upload",
      path: "/v1/files",
      init: {
        method: "POST",
        headers: { "x-api-key": keys.inference },
        body: form(content as BlobPart, name, fields),
      },
    });
    this.done.uploads += 1;
    return outcome === "complete" ? String(parse(text)["id"]) : null;
  }

  /** Uploads, reads again or deletes a file. */
  async file(): Promise<void> {
    const draw = this.#random();
    if (this.files.length === 0 || (draw < 0.4 && this.files.length < MOST_FILES)) {
      const size = Math.floor(this.#random() ** 4 * 3_000_000);
      const content = randomBytes(size);
      const id = await this.#upload(content, "soak.bin", {});
      if (id !== null) this.files.push({ id, digest: digestOf(content) });
    } else if (draw < 0.8 && this.files.length < MOST_FILES) {
      const file = this.files[Math.floor(this.#random() * this.files.length)];
      if (file !== undefined) await this.readFile(file);
    } else {
      // What is asked to go may be gone though no answer comes.
      const [file] = this.files.splice(Math.floor(this.#random() * this.files.length), 1);
      await this.#call("deletion", "DELETE", `/v1/files/${file?.id}`);
      this.done.deletions += 1;
    }
  }

  /** @returns whether it is as it was written. */
  async readFile({ id, digest }: KeptFile): Promise<boolean> {
    const { outcome } = await this.#call("file", "GET", `/v1/files/${id}/content`, undefined, {
      judge: (_, bytes) => (digestOf(bytes) === digest ? null : "other contents"),
    });
    this.done.downloads += 1;
    return outcome === "complete";
  }

  // Keys and reports

  /** Makes a key, which serves at once everywhere; ends it, which does as well. */
  async key(): Promise<void> {
    const made = await this.#call("new key", "POST", "/v1/organizations/api_keys", { name: "soak" });
    if (made.outcome !== "complete") return;
    const { id, key } = parse(made.text);
    this.done.keys += 1;
    const list = (what: string, fine: number[], more: Partial<Exchanging> = {}) =>
      this.#exchange({ what, path: "/v1/models", init: { headers: headers(String(key)) }, fine, ...more });
    await list("models by a new key", []);
    const ended = await this.#call("end of a key", "POST", `/v1/organizations/api_keys/${String(id)}`, {
      status: "inactive",
    });
    if (ended.outcome !== "complete") return;
    // Rule 5.2: on every pod within a second, unless it is cut off.
    await sleep(1_000);
    const { world } = this.#options;
    for (const plane of planeIndexes)
      if (!world.troubled(plane))
        await list("models by a key that has ended", [401], {
          plane,
          judge: () => (world.troubled(plane) ? null : "it still serves"),
        });
  }

  /** Reads what the organization is told of itself. */
  async report(): Promise<void> {
    const paths = ["/v1/organization/credits", "/v1/organization/costs", "/v1/organizations/api_keys"];
    await this.#call("report", "GET", paths[Math.floor(this.#random() * paths.length)] ?? "");
    await this.#call("models", "GET", "/v1/models");
    await this.#call("count", "POST", "/v1/messages/count_tokens", {
      model: models.chat,
      messages: [{ role: "user", content: question(0, "hello") }],
    });
    this.done.reports += 1;
  }

  /** Credit that is held, as the organization is told; null: nobody says. */
  async held(): Promise<string | null> {
    const { outcome, text } = await this.#call("credits", "GET", "/v1/organization/credits");
    return outcome === "complete" ? String(parse(text)["held"]) : null;
  }
}

const digestOf = (bytes: Buffer) => createHash("sha256").update(bytes).digest("hex");

const seenBatch = (id: string, made: SeenBatch["form"], markers: SeenBatch["markers"]): SeenBatch => ({
  id,
  form: made,
  markers,
  canceled: false,
  ended: false,
  lines: null,
});

const pathOf = ({ id, form: made }: SeenBatch) =>
  made === "messages" ? `/v1/messages/batches/${id}` : `/v1/batches/${id}`;

/** A result line of either form. */
export function readLine(line: Json): SeenLine {
  const customId = String(line["custom_id"]);
  const result = line["result"] as Json | undefined;
  if (result !== undefined) {
    const outcome = String(result["type"]) as SeenLine["outcome"];
    return { customId, requestId: null, outcome, output: outputIn((result["message"] ?? {}) as Json) };
  }
  const response = line["response"] as Json | null;
  const body = (response?.["body"] ?? {}) as Json;
  const requestId = typeof response?.["request_id"] === "string" ? response["request_id"] : null;
  if (response?.["status_code"] === 200)
    return { customId, requestId, outcome: "succeeded", output: outputIn(body) };
  const code = (line["error"] as Json | null)?.["code"];
  const outcomes: Readonly<Record<string, SeenLine["outcome"]>> = {
    batch_cancelled: "canceled",
    batch_expired: "expired",
  };
  return { customId, requestId, outcome: outcomes[String(code)] ?? "errored", output: null };
}

function outputIn(body: Json): number | null {
  const usage = (body["usage"] ?? {}) as Json;
  const output = usage["output_tokens"] ?? usage["completion_tokens"];
  return typeof output === "number" ? output : null;
}
