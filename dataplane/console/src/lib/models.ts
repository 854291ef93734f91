/** The models that an inference key may call. */
import type { Model } from "../api/schema.ts";
import { inference } from "../session.ts";

const MOST_MODELS = 10_000;

export const readModels = async (signal: AbortSignal): Promise<readonly Model[]> =>
  (await inference("GET /v1/models", { query: { limit: MOST_MODELS }, signal })).data;

/** Whether a model's id or name contains the text, whatever the case. */
export const isFound = ({ id, display_name: name }: Model, search: string): boolean =>
  [id, name].some((text) => text.toLowerCase().includes(search.trim().toLowerCase()));
