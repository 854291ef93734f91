/** Wakes the workers of all pods through Redis. Without Redis they find work by looking, a little later. */
import type { Redis } from "ioredis";

const CHANNEL = "gapura:batches";

export interface Bell {
  /** There is something to do. Never fails. */
  ring(): void;
  /** Calls `listener` when any pod rings. */
  listen(listener: () => void): void;
  close(): void;
}

export function redisBell(redis: Redis): Bell {
  const subscriber = redis.duplicate({ enableOfflineQueue: true, maxRetriesPerRequest: null });
  subscriber.on("error", () => {});
  const listeners = new Set<() => void>();
  const tell = () => {
    for (const listener of listeners) listener();
  };
  subscriber.on("message", tell);
  // It subscribes again by itself when a connection breaks; what was rung meanwhile is found by looking.
  subscriber.subscribe(CHANNEL).catch(() => undefined);
  return {
    ring: () => {
      // This pod does not depend on Redis to hear itself.
      tell();
      redis.publish(CHANNEL, "").catch(() => undefined);
    },
    listen: (listener) => void listeners.add(listener),
    close: () => subscriber.disconnect(),
  };
}
