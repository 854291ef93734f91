/** Tool calls an organization may make in a minute, live requests and batches together (service.md "Limits"). */
import type { RedisStore } from "../store/redis-servers.ts";
import { nanoid } from "nanoid";
import { loadScript } from "../store/redis.ts";

/** Limits on the tool calls of a request. */
export interface ToolCallLimits {
  /** Calls a minute of its organization, batches included. */
  readonly callsPerMinute: number;
  /** Calls of the request at once. */
  readonly parallelCalls: number;
}

/** Counts one call. False: the organization has made as many as it may in the last minute. */
export type AdmitToolCall = (organizationId: string, limit: number) => Promise<boolean>;

const count = loadScript(new URL("./call-limit.lua", import.meta.url), (reply) => reply === 1);

/** @throws whatever ioredis throws when Redis is out of reach. */
export const redisCallLimit =
  (redis: RedisStore): AdmitToolCall =>
  (organizationId, limit) =>
    count(redis, [`gapura:tool-calls:{${organizationId}}`], [limit, nanoid(12)]);
