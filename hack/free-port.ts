/** Ports for programs that are about to start. */
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:net";

/**
 * Lowest port. All lie below the ports that Linux and others give to outgoing connections: one of those could be taken between
 * the look and the program's start.
 */
const LOWEST = 15_000;
const HIGHEST = 32_000;
const MOST_TRIES = 100;

let next = randomInt(LOWEST, HIGHEST);

/**
 * A port of 127.0.0.1 that was free a moment ago. Ports are given in a row from a random one: a killed server of this process
 * finds its own free again, and other processes seldom give the same.
 *
 * @throws Error when a hundred in a row are taken
 */
export async function freePort(): Promise<number> {
  for (let tries = 0; tries < MOST_TRIES; tries += 1) {
    const port = next;
    next = port + 1 < HIGHEST ? port + 1 : LOWEST;
    if (await isFree(port)) return port;
  }
  throw new Error(`none of ${MOST_TRIES} ports from ${LOWEST} to ${HIGHEST} is free`);
}

function isFree(port: number): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const probe = createServer();
  probe.once("error", () => resolve(false));
  probe.listen(port, "127.0.0.1", () => probe.close(() => resolve(true)));
  return promise;
}

/** Codes of errors of the host rather than of its port. */
const NO_HOST: ReadonlySet<string> = new Set(["EADDRNOTAVAIL", "ENOTFOUND"]);

/**
 * Returns the port itself, or a free one for 0.
 * @throws Error when it is taken: another program would answer in our place; or when the host cannot be listened on.
 */
export async function choosePort(flag: string, given: number, host: string): Promise<number> {
  const port = given === 0 ? await freePort() : given;
  const probe = createServer();
  try {
    probe.listen(port, host);
    await once(probe, "listening");
  } catch (error) {
    const { code = "" } = error as NodeJS.ErrnoException;
    if (NO_HOST.has(code))
      throw new Error(`--host ${host} cannot be listened on (${code}): choose an address of this machine`, {
        cause: error,
      });
    throw new Error(`port ${port} of ${host} cannot be used (${code}): choose another with ${flag}`, {
      cause: error,
    });
  } finally {
    probe.close();
  }
  return port;
}
