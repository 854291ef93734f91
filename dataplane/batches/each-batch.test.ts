import { expect, test } from "vitest";
import { pino } from "pino";
import { eachBatch } from "./each-batch.ts";

const log = pino({ level: "silent" });

test("a batch that fails holds up no other; a store that is away holds up nobody who waits for the end", async () => {
  const done: string[] = [];
  const doing = (fault: Error) => async (id: string) => {
    if (id === "b") throw fault;
    done.push(id);
  };
  await eachBatch({ log }, ["a", "b", "c"], "emptied", doing(new Error("broken")));
  expect(done.splice(0)).toEqual(["a", "c"]);
  const away = Object.assign(new Error("no connection"), { code: "57P03" });
  await expect(eachBatch({ log }, ["a", "b", "c"], "emptied", doing(away))).rejects.toBe(away);
  expect(done).toEqual(["a"]);
});
