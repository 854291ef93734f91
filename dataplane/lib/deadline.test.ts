import { expect, test, vi } from "vitest";
import { Deadline } from "./deadline.ts";
import { Shutdown } from "./shutdown.ts";

test("its time stands still until all pauses are over", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  try {
    const deadline = new Deadline(1_000);
    const heard = vi.fn();
    deadline.listen(heard);
    await vi.advanceTimersByTimeAsync(600);
    const [one, other] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    for (const { promise } of [one, one, other]) deadline.stopFor(promise);
    await vi.advanceTimersByTimeAsync(5_000);
    one.resolve();
    await vi.advanceTimersByTimeAsync(5_000);
    expect([deadline.remainingMs, deadline.fault]).toEqual([400, null]);
    // A pause that fails is over as well.
    other.reject(new Error("over"));
    await vi.advanceTimersByTimeAsync(399);
    expect(deadline.remainingMs).toBe(1);
    expect(heard).not.toHaveBeenCalled();
    await vi.advanceTimersByTimeAsync(1);
    expect(heard.mock.calls).toEqual([["deadline"]]);
  } finally {
    vi.useRealTimers();
  }
});

test("a pause keeps no process from ending, and sets no timer once the work is over", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  try {
    const pause = Promise.withResolvers<void>();
    const disposed = new Deadline(1_000);
    disposed.stopFor(pause.promise);
    disposed.dispose();
    const shutdown = new Shutdown();
    const ended = new Deadline(1_000, shutdown);
    ended.stopFor(pause.promise);
    shutdown.tell();
    expect([ended.fault, ended.remainingMs]).toEqual(["shutdown", 0]);
    pause.resolve();
    await vi.advanceTimersByTimeAsync(0);
    expect(vi.getTimerCount()).toBe(0);
  } finally {
    vi.useRealTimers();
  }
});
