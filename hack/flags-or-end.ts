import type { ParseArgsConfig } from "node:util";
import { commandArguments } from "../dataplane/lib/command-arguments.ts";

/**
 * The words behind a command that a person calls, read as its options. Where they are none of its options, `--help`
 * among them, it says so and how the command is called, and ends the process with 2.
 */
export function flagsOrEnd<const Config extends ParseArgsConfig>(usage: string, config: Config) {
  try {
    return commandArguments<Config>(usage, config);
  } catch (error) {
    console.error((error as Error).message);
    process.exit(2);
  }
}
