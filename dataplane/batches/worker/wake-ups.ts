/** Wakes the workers of all pods through Redis. Without Redis they find work by looking, a little later. */
import { duplicateToListen, type RedisStore } from "../../store/redis-servers.ts";

const CHANNEL = "gapura:batches";

export interface WakeUps {
  /** There is something to do. Never fails. */
  send(): void;
  /** Calls `listener` when any pod rings. */
  listen(listener: () => void): void;
  close(): void;
}

/** `redis`: its options are taken over for a connection of one's own, and `send` uses it. */
export function redisWakeUps(redis: RedisStore): WakeUps {
  // Left to itself the client subscribes anew after each break with a promise that nobody awaits: on a busy machine
  // that time-out would end the process.
  const subscriber = duplicateToListen(redis);
  subscriber.on("error", () => {});
  const listeners = new Set<() => void>();
  const tell = () => {
    for (const listener of listeners) listener();
  };
  subscriber.on("message", tell);
  // What was sent while it was not subscribed is found by looking.
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
