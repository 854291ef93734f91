/**
 * Named points of a process's work, for tests that kill it at one of them (test/chaos). They are published on a
 * diagnostics channel: without a subscriber that costs nothing.
 */
import { channel } from "node:diagnostics_channel";

/** Makes a function that publishes on the channel `name` that a step was reached. */
export function publisherOf(name: string): (step: string) => void {
  const steps = channel(name);
  return (step) => {
    if (steps.hasSubscribers) steps.publish(step);
  };
}
