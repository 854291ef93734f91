import { jsonInSlices } from "../../dataplane/lib/json-slices.ts";

/** The JSON of an answer, as it goes out. */
export async function written(value: object, sliceMs = 1): Promise<string> {
  const pieces: Buffer[] = [];
  for await (const piece of jsonInSlices(value, sliceMs)) pieces.push(piece);
  return Buffer.concat(pieces).toString();
}
