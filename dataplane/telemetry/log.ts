import { pino, type DestinationStream, type Logger } from "pino";

/**
 * The process' logger: one JSON object a line on standard output. The redaction is a second fence: no code logs
 * headers, bodies or keys in the first place.
 */
export function createLogger(level: string, destination?: DestinationStream): Logger {
  const options = {
    level,
    base: null,
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
    redact: {
      paths: ["headers", "*.headers", "body", "*.body", "key", "*.key", "authorization", "*.authorization"],
      censor: "[removed]",
    },
  };
  return destination === undefined ? pino(options) : pino(options, destination);
}
