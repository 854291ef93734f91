/**
 * File contents in S3-compatible storage, one object for each file.
 * `FILES_S3_URL`: `https://ACCESS_KEY:SECRET_KEY@HOST/BUCKET?region=REGION` (path style; region default `auto`).
 */
import { S3mini, S3NetworkError, S3ServiceError } from "s3mini";
import { countMoved } from "../lib/garbage.ts";
import { unhindered, type PieceReader } from "../lib/piece-reader.ts";
import { StoreAway } from "../store/store-away.ts";
import { HELD_BYTES, piecesOf, type FileContents, type WrittenFile } from "./contents.ts";

const READ_BYTES = 4 * 1024 * 1024;
const REQUEST_TIMEOUT_MS = 60_000;
const TYPE = "application/octet-stream";

export class S3Contents implements FileContents {
  readonly storage = "s3";
  readonly #s3: S3mini;

  /** @throws Error without credentials or a bucket in the URL; the message holds neither. */
  constructor(url: string) {
    const parsed = new URL(url);
    const bucket = parsed.pathname.replaceAll(/^\/+|\/+$/g, "");
    if (parsed.username === "" || parsed.password === "" || bucket === "") {
      throw new Error("FILES_S3_URL must be of the form https://ACCESS_KEY:SECRET_KEY@HOST/BUCKET");
    }
    this.#s3 = new S3mini({
      accessKeyId: decodeURIComponent(parsed.username),
      secretAccessKey: decodeURIComponent(parsed.password),
      endpoint: `${parsed.origin}/${bucket}`,
      region: parsed.searchParams.get("region") ?? "auto",
      requestAbortTimeout: REQUEST_TIMEOUT_MS,
    });
  }

  async write(
    { id }: WrittenFile,
    source: AsyncIterable<Buffer>,
    onProgress: () => Promise<void>,
  ): Promise<number> {
    const pieces = piecesOf(source, HELD_BYTES)[Symbol.asyncIterator]();
    const first = await pieces.next();
    if (first.done === true || first.value.length < HELD_BYTES) {
      const whole = first.done === true ? Buffer.alloc(0) : first.value;
      await answered(this.#s3.putObject(id, whole, TYPE));
      return whole.length;
    }
    const upload = await answered(this.#s3.getMultipartUploadId(id, TYPE));
    try {
      const parts = [];
      let size = 0;
      for (let next: IteratorResult<Buffer> = first; next.done !== true; next = await pieces.next()) {
        parts.push(await answered(this.#s3.uploadPart(id, upload, next.value, parts.length + 1)));
        size += next.value.length;
        await onProgress();
      }
      await answered(this.#s3.completeMultipartUpload(id, upload, parts));
      return size;
    } catch (error) {
      await this.#s3.abortMultipartUpload(id, upload).catch(() => undefined);
      throw error;
    }
  }

  async *read(
    id: string,
    start: number,
    end: number,
    reader: PieceReader = unhindered,
  ): AsyncIterable<Buffer> {
    let to = start;
    for (let at = start; at < end; at = to) {
      to = at + reader.most(Math.min(READ_BYTES, end - at));
      const answer = await answered(this.#s3.getObjectRaw(id, false, at, to));
      const body = Buffer.from(await answered(answer.arrayBuffer()));
      // A server may answer a range with the whole object; s3rver does so for the first byte alone, saying 206.
      const bytes = body.length === to - at ? body : body.subarray(at, to);
      if (bytes.length !== to - at)
        throw new Error(`file ${id}: ${bytes.length} bytes instead of ${to - at}`);
      countMoved(bytes.length);
      yield bytes;
    }
  }

  async remove(id: string): Promise<void> {
    // A killed process may have left a multipart upload. Servers that cannot list these clear them by a lifecycle rule.
    const listing = this.#s3.listMultipartUploads("/", id).catch((error: unknown) => {
      if (error instanceof S3ServiceError && error.status === 501) return null;
      throw error;
    });
    for (const upload of uploadIdsOf(await answered(listing), id))
      await answered(this.#s3.abortMultipartUpload(id, upload));
    await answered(this.#s3.deleteObject(id));
  }
}

/** Awaits the storage's answer. @throws StoreAway where it does not answer or is unavailable; else what `asking` throws. */
async function answered<Answer>(asking: Promise<Answer>): Promise<Answer> {
  try {
    return await asking;
  } catch (error) {
    throw isAway(error) ? new StoreAway("the storage of files is away", { cause: error }) : error;
  }
}

/** Whether the storage is away. A connection that failed is recognizable only as a TypeError of fetch with a cause. */
function isAway(error: unknown): boolean {
  if (error instanceof S3ServiceError)
    return (error.status >= 500 && error.status !== 501) || error.status === 429;
  if (error instanceof S3NetworkError) return true;
  if (error instanceof DOMException) return error.name === "TimeoutError";
  return error instanceof TypeError && error.cause instanceof Error;
}

/** The answer's shape follows the server's XML: one upload is an object, several are a list. */
function uploadIdsOf(answer: unknown, key: string): string[] {
  if (Array.isArray(answer)) return answer.flatMap((entry) => uploadIdsOf(entry, key));
  if (answer === null || typeof answer !== "object") return [];
  const entries = new Map(
    Object.entries(answer).map(([name, inner]) => [name.toLowerCase(), inner as unknown]),
  );
  const id = entries.get("uploadid");
  if (typeof id === "string") return entries.get("key") === key ? [id] : [];
  return [...entries.values()].flatMap((inner) => uploadIdsOf(inner, key));
}
