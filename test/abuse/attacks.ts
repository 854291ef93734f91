/** The corpus: what a stranger with one key, with or without credit, may think of sending. */
import type { Attack } from "./attack.ts";
import { compressed } from "./corpus/compressed.ts";
import { connections } from "./corpus/connections.ts";
import { counted } from "./corpus/counted.ts";
import { downloads } from "./corpus/downloads.ts";
import { long } from "./corpus/long.ts";
import { requests } from "./corpus/requests.ts";
import { streams } from "./corpus/streams.ts";
import { wide } from "./corpus/wide.ts";

/** Every attack, those of the short form among them. */
export const attacks: readonly Attack[] = [
  ...compressed,
  ...wide,
  ...long,
  ...counted,
  ...requests,
  ...connections,
  ...streams,
  ...downloads,
];
