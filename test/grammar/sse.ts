/** Server-sent events of a finished stream, for tests: strict where the service's own framing has to be exact. */

export interface Frame {
  /** Empty when the event had no name. */
  readonly event: string;
  readonly data: string;
}

/** Events of a whole stream; comments are left out. Every event must end in a blank line. */
export function framesOf(stream: string): Frame[] {
  if (stream !== "" && !stream.endsWith("\n\n")) throw new Error(`not a whole stream: ${stream.slice(-80)}`);
  return stream
    .split("\n\n")
    .filter((block) => block !== "" && !block.startsWith(":"))
    .map((block) => {
      const lines = block.split("\n");
      const field = (name: string) =>
        lines.filter((line) => line.startsWith(`${name}: `)).map((line) => line.slice(name.length + 2));
      return { event: field("event").join(), data: field("data").join("\n") };
    });
}

/** Collects what is wrong with a stream. */
export class Faults {
  readonly list: string[] = [];

  check(holds: boolean, fault: string): void {
    if (!holds) this.list.push(fault);
  }
}

export type Fields = Record<string, unknown>;

export const fieldsOf = (value: unknown): Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Fields) : {};

export const isText = (value: unknown): value is string => typeof value === "string";
export const isId = (value: unknown): boolean => typeof value === "string" && value !== "";
export const isCount = (value: unknown): boolean => Number.isInteger(value) && (value as number) >= 0;

/** Parsed JSON, or undefined. */
export function json(text: unknown): unknown {
  try {
    return typeof text === "string" ? (JSON.parse(text) as unknown) : undefined;
  } catch {
    return undefined;
  }
}

export const isJsonObject = (text: unknown): boolean => {
  const value = json(text);
  return typeof value === "object" && value !== null && !Array.isArray(value);
};
