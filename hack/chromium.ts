/** Debian's Chromium for the tests of the console: the system's, else one unpacked into the cache folder. */
import { arch } from "node:os";
import type { Say } from "./cache.ts";
import { findProgram, type Program } from "./debian.ts";

/** @throws Error saying why there is none and none could be unpacked. */
export const findChromium = (say: Say): Promise<Program> =>
  findProgram(
    {
      folder: `chromium-${arch()}`,
      // The browser itself: what Debian calls `chromium` is a script that looks for it at its installed place.
      choices: [{ program: "../lib/chromium/chromium", debianPackage: "chromium" }],
    },
    say,
  );
