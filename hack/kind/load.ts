/**
 * `load.ts URL SECONDS`: requests one after the other, streamed and whole, each over a connection of its own, with
 * the key in `GAPURA_KEY`. Prints how many there were; exit 1 when one of them failed.
 */
const [url = "", seconds = "60"] = process.argv.slice(2);
const until = Date.now() + Number(seconds) * 1000;
const failures: string[] = [];
let asked = 0;

async function ask(stream: boolean): Promise<string | null> {
  const answer = await fetch(`${url}/v1/messages`, {
    method: "POST",
    headers: {
      "x-api-key": process.env["GAPURA_KEY"] ?? "",
      "content-type": "application/json",
      connection: "close",
    },
    body: JSON.stringify({
      model: "demo-messages",
      max_tokens: 300,
      stream,
      messages: [{ role: "user", content: "Count to twenty." }],
    }),
    signal: AbortSignal.timeout(60_000),
  });
  const text = await answer.text();
  if (answer.status !== 200) return `${answer.status} ${text.slice(0, 200)}`;
  return stream && !text.includes("event: message_stop") ? "the stream was cut" : null;
}

async function work(stream: boolean): Promise<void> {
  while (Date.now() < until) {
    asked += 1;
    const failure = await ask(stream).catch((error: unknown) => String(error));
    if (failure !== null) failures.push(failure);
  }
}

await Promise.all([true, true, true, false, false].map(work));
process.stdout.write(`${asked} requests, ${failures.length} failed\n`);
for (const failure of failures.slice(0, 20)) process.stdout.write(`${failure}\n`);
process.exit(failures.length === 0 && asked > 0 ? 0 : 1);
