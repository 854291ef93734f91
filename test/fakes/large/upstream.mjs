// An upstream in a thread of its own, which reads nothing of what it gets but how much it is. Below /large/SHAPE/DIALECT it answers
// largely, below /streamed/SHAPE/DIALECT with a stream (answers.ts).
import { createServer } from "node:http";
import { parentPort } from "node:worker_threads";
import { answerOf, streamOf } from "./answers.ts";

const usage = { input_tokens: 1, output_tokens: 1, total_tokens: 2 };
const answers = {
  messages: {
    id: "msg_1",
    type: "message",
    role: "assistant",
    model: "m",
    content: [{ type: "text", text: "ok" }],
    stop_reason: "end_turn",
    stop_sequence: null,
    usage,
  },
  completions: {
    id: "c",
    object: "chat.completion",
    created: 1,
    model: "m",
    choices: [{ index: 0, message: { role: "assistant", content: "ok" }, finish_reason: "stop" }],
    usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
  },
  responses: {
    id: "resp_1",
    object: "response",
    created_at: 1,
    status: "completed",
    model: "m",
    output: [
      {
        type: "message",
        id: "msg_1",
        role: "assistant",
        status: "completed",
        content: [{ type: "output_text", text: "ok", annotations: [] }],
      },
    ],
    usage,
  },
};
/** The large answer that was asked for last, as it takes long to make. */
let made = { shape: "", dialect: "", answer: Buffer.alloc(0) };
function largeAnswer(shape, dialect) {
  if (made.shape !== shape || made.dialect !== dialect)
    made = { shape, dialect, answer: dialect === "" ? streamOf(shape) : answerOf(dialect, shape) };
  return made.answer;
}

const server = createServer((request, response) => {
  request.on("data", () => undefined);
  request.on("end", () => {
    const [, large, shape, dialect] = decodeURIComponent(request.url).split("/");
    const isStream = large === "streamed";
    response.setHeader("content-type", isStream ? "text/event-stream" : "application/json");
    if (isStream) response.end(largeAnswer(shape, ""));
    else
      response.end(
        large === "large"
          ? largeAnswer(shape, dialect)
          : JSON.stringify(answers[request.url.split("/").at(-1)]),
      );
  });
});
server.listen(0, "127.0.0.1", () => parentPort.postMessage(server.address().port));
