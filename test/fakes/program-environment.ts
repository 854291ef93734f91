/**
 * What each program of ours that a test starts with an environment of its own has in it: where programs are found, and where
 * compiled code is kept (hack/ensure.mjs), without which it starts in twice the time.
 */
export function programEnvironment(): Readonly<Record<string, string>> {
  const { PATH = "", NODE_COMPILE_CACHE } = process.env;
  return { PATH, ...(NODE_COMPILE_CACHE === undefined ? {} : { NODE_COMPILE_CACHE }) };
}
