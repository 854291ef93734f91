/**
 * Milliseconds that this thread has computed; counted in steps of some milliseconds. Where a test asks how much there is to do,
 * this says it: the time that passes depends on what else a machine is busy with.
 */
export function computedMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}
