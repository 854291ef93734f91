/** Files that the browser saves. */
import { useState } from "preact/hooks";
import { inferenceFile } from "../session.ts";
import { errorOf } from "./error-of.ts";

/** Returns the URL of a stored file's bytes. */
export const contentUrl = (file: string): string => `/v1/files/${encodeURIComponent(file)}/content`;

/** Hands the browser a file. */
export function download(name: string, content: BlobPart, type: string): void {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // After this time the browser has begun to read it.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** Saves files that the inference key may read; `problem`: why the last one could not be saved. */
export function useDownload() {
  const [problem, setProblem] = useState<Error | null>(null);
  const save = async (name: string, url: string, type: string) => {
    setProblem(null);
    try {
      download(name, await inferenceFile(url), type);
    } catch (error) {
      setProblem(errorOf(error));
    }
  };
  return { problem, save };
}
