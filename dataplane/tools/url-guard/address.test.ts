import { describe, expect, test } from "vitest";
import { egressRules, judgeAddress, judgePort } from "./address.ts";

const publicOnly = egressRules({ allowCidrs: [], allowPorts: [] });
const everything = egressRules({ allowCidrs: ["0.0.0.0/0", "::/0"], allowPorts: [] });

const globallyReachable = [
  "1.1.1.1",
  "8.8.8.8",
  "93.184.216.34",
  "100.63.255.255",
  "100.128.0.0",
  "172.15.255.255",
  "172.32.0.0",
  "198.17.255.255",
  "198.20.0.0",
  "223.255.255.255",
  "2606:4700:4700::1111",
  "2001:4860:4860::8888",
  "2a00:1450:4001::1",
];

/** Special ranges, which a policy may open. */
const special = [
  "10.0.0.1",
  "10.255.255.255",
  "100.64.0.1",
  "100.127.255.254",
  "127.0.0.1",
  "127.255.255.254",
  "172.16.0.1",
  "172.31.255.254",
  "192.0.0.1",
  "192.0.2.1",
  "192.88.99.1",
  "192.168.0.1",
  "198.18.0.1",
  "198.19.255.255",
  "198.51.100.7",
  "203.0.113.9",
  "240.0.0.1",
  "254.1.2.3",
  "::1",
  "100::1",
  "2001:2::1",
  "2001:10::1",
  "2001:20::1",
  "2001:db8::1",
  "3fff::1",
  "5f00::1",
  "4000::1",
  "fc00::1",
  "fd12:3456::1",
];

/** What no policy opens. */
const never = [
  "0.0.0.0",
  "0.1.2.3",
  "169.254.169.254",
  "169.254.0.1",
  "224.0.0.1",
  "239.255.255.250",
  "255.255.255.255",
  "100.100.100.200",
  "168.63.129.16",
  "192.0.0.192",
  "::",
  "fe80::1",
  "fe80::a9fe:a9fe",
  "febf::1",
  "fec0::1",
  "ff02::1",
  "fd00:ec2::254",
  "fd20:ce::254",
  "fd00:42::42",
  "::ffff:8.8.8.8",
  "::ffff:127.0.0.1",
  "::ffff:a9fe:a9fe",
  "::ffff:0:127.0.0.1",
  "::127.0.0.1",
  "::8.8.8.8",
  "64:ff9b::808:808",
  "64:ff9b::127.0.0.1",
  "64:ff9b:1::1",
  "2001::1",
  "2001:0:53aa:64c:0:0:0:1",
  "2002:7f00:1::",
  "2002:808:808::1",
  "fe80::1%lo",
  "::1%lo",
  "2606:4700::1%eth0",
  "127.1",
  "0177.0.0.1",
  "0x7f.0.0.1",
  "2130706433",
  "127.0.0.01",
  "1.1.1.1 ",
  "",
  "localhost",
];

describe("rule 3.16: public means IANA-public", () => {
  test.each(globallyReachable)("%s may be connected to", (address) => {
    expect(judgeAddress(address, publicOnly)).toEqual({ allowed: true });
  });
  test.each([...special, ...never])("%s may not", (address) => {
    expect(judgeAddress(address, publicOnly)).toMatchObject({ allowed: false });
  });
});

describe("rule 3.16: allowCIDRs never opens link-local, metadata or embedded addresses", () => {
  test.each(special)("a policy may open %s", (address) => {
    expect(judgeAddress(address, everything)).toEqual({ allowed: true });
  });
  test.each(never)("no policy opens %s", (address) => {
    expect(judgeAddress(address, everything)).toMatchObject({ allowed: false });
  });
  test("a range of one family opens nothing of the other, and one that does not parse opens nothing", () => {
    const rules = egressRules({ allowCidrs: ["::/0", "10.0.0.0", "ten/8", "10.0.0.0/33"], allowPorts: [] });
    expect(judgeAddress("10.0.0.1", rules)).toMatchObject({ allowed: false });
    expect(judgeAddress("10.20.1.1", egressRules({ allowCidrs: ["10.20.0.0/16"], allowPorts: [] }))).toEqual({
      allowed: true,
    });
  });
  test("a range opens what lies in it and nothing beside it", () => {
    const rules = egressRules({ allowCidrs: ["10.20.0.0/16", "fd12::/16"], allowPorts: [] });
    const inside = ["10.20.0.0", "10.20.255.255", "fd12::1"];
    const beside = ["10.19.255.255", "10.21.0.0", "fd13::1"];
    expect(inside.map((address) => judgeAddress(address, rules).allowed)).toEqual([true, true, true]);
    expect(beside.map((address) => judgeAddress(address, rules).allowed)).toEqual([false, false, false]);
  });
});

test("any port is open inside the ranges alone, and only where the policy says so", () => {
  const egress = { allowCidrs: ["10.0.0.0/8"], allowPorts: [8443] };
  const anywhere = egressRules({ ...egress, anyPortInside: true });
  expect([443, 8443, 9000].map((port) => judgePort("1.1.1.1", port, anywhere))).toEqual([true, true, false]);
  expect(judgePort("10.0.0.1", 9000, anywhere)).toBe(true);
  expect(judgePort("10.0.0.1", 9000, egressRules(egress))).toBe(false);
  expect(judgePort("a.example", 9000, anywhere)).toBe(false);
});
