import type { ParseArgsConfig } from "node:util";
import { commandArguments } from "../dataplane/lib/command-arguments.ts";

/**
 * Reads the words behind a command that a person calls as its options. Where they are not its options, or are `--help`, prints
 * what is wrong and the usage, and ends the process with 2.
 */
export function flagsOrEnd<const Config extends ParseArgsConfig>(usage: string, config: Config) {
  try {
    return commandArguments<Config>(usage, config);
  } catch (error) {
    console.error((error as Error).message);
    process.exit(2);
  }
}
