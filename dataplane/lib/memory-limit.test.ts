import { expect, test } from "vitest";
import { memoryLimit } from "./memory-limit.ts";

const GiB = 1024 ** 3;
const system = 64 * GiB;
const none = "9223372036854771712\n";

test.each<[string, Record<string, string>, number]>([
  ["no control groups", {}, system],
  [
    "a container of cgroup v2",
    { "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": `${2 * GiB}\n` },
    2 * GiB,
  ],
  ["v2 without a limit", { "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "max\n" }, system],
  [
    "v2 on a machine, the limit of a group around it being the least",
    {
      "/proc/self/cgroup": "0::/user.slice/app.service\n",
      "/sys/fs/cgroup/user.slice/app.service/memory.max": "max\n",
      "/sys/fs/cgroup/user.slice/memory.max": `${4 * GiB}\n`,
    },
    4 * GiB,
  ],
  [
    "v2 in a container that sees the host's path",
    { "/proc/self/cgroup": "0::/kubepods/pod1/c1\n", "/sys/fs/cgroup/memory.max": `${GiB}\n` },
    GiB,
  ],
  [
    "a container of cgroup v1",
    {
      "/proc/self/cgroup": "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n",
      "/sys/fs/cgroup/memory/memory.limit_in_bytes": `${GiB}\n`,
    },
    GiB,
  ],
  [
    "v1 without a limit",
    { "/proc/self/cgroup": "4:memory:/\n", "/sys/fs/cgroup/memory/memory.limit_in_bytes": none },
    system,
  ],
  [
    "v1 in a group of its own, whose path holds a colon",
    {
      "/proc/self/cgroup": "4:hugetlb,memory:/a:b\n",
      "/sys/fs/cgroup/memory/memory.limit_in_bytes": none,
      "/sys/fs/cgroup/memory/a:b/memory.limit_in_bytes": "536870912",
    },
    536870912,
  ],
  [
    "a limit beyond the machine's memory",
    { "/proc/self/cgroup": "0::/", "/sys/fs/cgroup/memory.max": `${100 * GiB}` },
    system,
  ],
  ["nonsense", { "/proc/self/cgroup": "?", "/sys/fs/cgroup/memory.max": "" }, system],
])("the memory limit with %s", (_, files, limit) => {
  expect(memoryLimit((path) => files[path] ?? null, system)).toBe(limit);
});
