/**
 * An upstream's refusal names places of the body that it was sent, which may differ from the client's. Only places of
 * the client's own body are shown to it.
 */
import { ApiError } from "../lib/api-error.ts";
import { chatFields } from "./chat/request-fields.ts";
import { type ClientPlaces, type PlacedField, placedFields } from "./client-places.ts";
import { type ForeignPlaces, noPlaces, placeAround } from "./foreign-places.ts";
import { responsesFields } from "./responses/request-fields.ts";
import { refusalOf } from "./upstream-error.ts";

const chatNames = new Set(chatFields.map(({ name }) => name));
/** Top-level fields that Chat and Responses have in common: the errors of both name a field. */
const sharedNames = new Set(
  responsesFields.map(({ name }) => name).filter((name) => !name.includes(".") && chatNames.has(name)),
);

/**
 * Removes paths from an upstream's error for a client of another dialect, whose body has no such paths. The place that
 * it names, or that its message begins with, is told as the client has it, where that is known.
 * @returns `error` itself when it is not an upstream's.
 */
export function withoutForeignPaths(error: ApiError, places = noPlaces): ApiError {
  if (error.code === "context_length_exceeded" && error.param !== undefined) return withoutPlace(error);
  if (refusalOf(error) === null || error.code !== "invalid_request") return error;
  const text = error.message.replace(leadingPath, "").replaceAll(pathInside, "a field");
  const { reportedCode } = error;
  const [, path = ""] = leadingPath.exec(error.message) ?? [];
  const named = error.param ?? path;
  const param = sharedNames.has(named) && named === error.param ? named : placeAround(named, places);
  return new ApiError("invalid_request", text, {
    ...(param === undefined ? {} : { param }),
    ...(reportedCode === undefined ? {} : { reportedCode }),
    cause: error,
  });
}

function withoutPlace(error: ApiError): ApiError {
  const { code, message, openaiMessage } = error;
  return new ApiError(code, message, {
    ...(openaiMessage === undefined ? {} : { openaiMessage }),
    cause: error,
  });
}

/** Places of the upstream's request that its error may name to the client, or, of another dialect, their names for it. */
export type ToldPlaces = ClientPlaces | "all" | ForeignPlaces;

const isForeign = (told: ClientPlaces | ForeignPlaces): told is ForeignPlaces => told instanceof Map;

/**
 * Removes places that are not the client's from an upstream's error.
 * @returns `error` itself when it is not an upstream's, or names no such place.
 */
export function withToldPlaces(error: ApiError, told: ToldPlaces): ApiError {
  if (told !== "all" && isForeign(told)) return withoutForeignPaths(error, told);
  if (told === "all" || refusalOf(error) === null || error.code !== "invalid_request") return error;
  const isTold = (field: string, index: string) => Number(index) < (told[field as PlacedField] ?? 0);
  const text = error.message.replaceAll(
    placeInList,
    (place: string, field: string, index: string, colon: string | undefined, at: number) => {
      if (isTold(field, index)) return place;
      return at === 0 && colon !== undefined ? "" : `a field${colon ?? ""}`;
    },
  );
  const { param, reportedCode } = error;
  const [, field, index] = [...(param ?? "").matchAll(placeInList)][0] ?? [];
  const isParamTold = field === undefined || index === undefined || isTold(field, index);
  if (text === error.message && isParamTold) return error;
  return new ApiError("invalid_request", text, {
    ...(param !== undefined && isParamTold ? { param } : {}),
    ...(reportedCode === undefined ? {} : { reportedCode }),
    cause: error,
  });
}

/** `messages.1.content.0: `, `'input[3].content[0].text'`, FastAPI's `body.messages.1: ` */
const placeInList = new RegExp(
  String.raw`['"\`]?\b(?:body\.)?(${placedFields.join("|")})[.[](\d+)\b(?:\]|\.\w+|\[\d+\])*['"\`]?(: )?`,
  "g",
);

/** `messages.1.content.0: …`, `max_tokens: …` */
const leadingPath = /^([a-z][a-z0-9_]*(?:\.\w+|\[\d+\])*): /;
/** `'input[3].content[0].text'` */
const pathInside = /['"`]?\b[a-z][a-z_]*(?:\.\w+)*(?:\[\d+\](?:\.\w+)*)+['"`]?/g;
