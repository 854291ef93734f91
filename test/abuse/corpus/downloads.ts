/** Files of gigabytes in all that are asked for at once and taken by nobody. */
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import type { Attack, Outcome, Target } from "../attack.ts";
import { form, MiB } from "../bodies.ts";
import { keys } from "../world.ts";

const FILE_BYTES = 24 * MiB;
/** How long a client takes nothing. */
const SILENT_MS = 4_000;

/** The file that all ask for, stored by the first. */
let stored: Promise<string> | null = null;

async function store({ port }: Target): Promise<string> {
  const { type, body } = form(Buffer.alloc(FILE_BYTES, 1));
  const answer = await fetch(`http://127.0.0.1:${port}/v1/files`, {
    method: "POST",
    headers: { authorization: `Bearer ${keys.rich}`, "content-type": type },
    body: new Uint8Array(body),
  });
  if (!answer.ok) throw new Error(`no file was stored: ${answer.status}`);
  return ((await answer.json()) as { id: string }).id;
}

async function askAndTakeNothing(target: Target): Promise<Outcome> {
  stored ??= store(target);
  const id = await stored;
  const socket = connect(target.port, "127.0.0.1").on("error", () => {});
  const lines = [`GET /v1/files/${id}/content HTTP/1.1`, "host: abuse", `authorization: Bearer ${keys.rich}`];
  socket.write([...lines, "", ""].join("\r\n"));
  await sleep(SILENT_MS);
  const head = socket.read(12) as Buffer | null;
  socket.destroy();
  // Others are read first.
  return head === null ? 200 : Number(head.toString("latin1", 9));
}

export const downloads: readonly Attack[] = [
  {
    name: "files: 800 downloads of 24 MiB that nobody takes",
    parallel: 800,
    expected: [200, 429, 503],
    short: false,
    send: askAndTakeNothing,
  },
];
