/** The words behind a command, read as its options. */
import { parseArgs, type ParseArgsConfig } from "node:util";

/** @throws Error that says what is wrong with them and, in its last line, how the command is called */
export function commandArguments<const Config extends ParseArgsConfig>(usage: string, config: Config) {
  try {
    return parseArgs<Config>(config);
  } catch (error) {
    throw new Error(`${(error as Error).message}\n${usage}`, { cause: error });
  }
}
