/** Ports that browsers, and with them `fetch`, call nobody on (https://fetch.spec.whatwg.org/#port-blocking). */
import type { Server } from "node:http";

/** Those of them that a program without rights may listen on and that are seldom taken. */
const BARRED = [10080, 6697, 6679, 6669, 6668, 6667, 6666, 6665, 6566, 5061, 4190, 4045];

/** Lets a server listen on such a port of 127.0.0.1. @returns the port @throws Error when none is free */
export async function listenOnBarredPort(server: Server): Promise<number> {
  for (const port of BARRED) {
    const isOurs = await new Promise<boolean>((done) => {
      const taken = () => done(false);
      server.once("error", taken);
      server.listen(port, "127.0.0.1", () => {
        server.off("error", taken);
        done(true);
      });
    });
    if (isOurs) return port;
  }
  throw new Error(`none of the ports ${BARRED.join(", ")} is free`);
}
