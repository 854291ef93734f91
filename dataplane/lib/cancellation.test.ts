import { expect, test, vi } from "vitest";
import { Cancellation } from "./cancellation.ts";

test("tells its last listener once, and nobody who was forgotten", () => {
  const cancellation = new Cancellation();
  const [first, second, third] = [vi.fn(), vi.fn(), vi.fn()];
  cancellation.listen(first);
  cancellation.listen(second);
  cancellation.forget(first);
  cancellation.abort();
  cancellation.abort();
  expect(cancellation.aborted).toBe(true);
  expect([first.mock.calls.length, second.mock.calls.length]).toEqual([0, 1]);
  const other = new Cancellation();
  other.listen(third);
  other.forget(third);
  other.abort();
  expect(third).not.toHaveBeenCalled();
});

test("its signal is aborted with it, also when it is asked for late", () => {
  const cancellation = new Cancellation();
  const { signal } = cancellation;
  expect(cancellation.signal).toBe(signal);
  expect(signal.aborted).toBe(false);
  cancellation.abort();
  expect(signal.aborted).toBe(true);
  const late = new Cancellation();
  late.abort();
  expect(late.signal.aborted).toBe(true);
});

test("follows a signal", () => {
  const controller = new AbortController();
  const cancellation = Cancellation.by(controller.signal);
  const listener = vi.fn();
  cancellation.listen(listener);
  expect(cancellation.aborted).toBe(false);
  controller.abort();
  expect(cancellation.aborted).toBe(true);
  expect(listener).toHaveBeenCalledOnce();
  expect(Cancellation.by(controller.signal).aborted).toBe(true);
});
