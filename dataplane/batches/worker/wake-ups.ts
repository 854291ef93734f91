/** Wakes the workers of all pods through Redis. Without Redis they find work by polling, a little later. */
import { duplicateToListen, type RedisStore } from "../../store/redis-servers.ts";

const CHANNEL = "gapura:batches";

export interface WakeUps {
  /** Wakes the workers of all pods. Never fails. */
  send(): void;
  /** Calls `listener` when any pod sends. */
  listen(listener: () => void): void;
  close(): void;
}

/** `redis`: `send` publishes with it; to listen, a connection of its own is made with its options. */
export function redisWakeUps(redis: RedisStore): WakeUps {
  // By itself the client subscribes again after each break with a promise that nobody awaits: on a busy machine its
  // time-out would end the process.
  const subscriber = duplicateToListen(redis);
  subscriber.on("error", () => {});
  const listeners = new Set<() => void>();
  const tell = () => {
    for (const listener of listeners) listener();
  };
  subscriber.on("message", tell);
  // Work that was announced while it was not subscribed is found by polling.
  const subscribe = () => {
    subscriber.subscribe(CHANNEL).catch(() => {
      // A connection that does not answer is given up; one that broke comes back by itself.
      if (subscriber.status === "ready") subscriber.disconnect(true);
    });
  };
  subscriber.on("ready", subscribe);
  return {
    send: () => {
      // This pod's own worker is woken directly, also without Redis.
      tell();
      redis.publish(CHANNEL, "").catch(() => undefined);
    },
    listen: (listener) => {
      listeners.add(listener);
    },
    close: () => subscriber.disconnect(),
  };
}
