import { Agent } from "undici";
import { expect, test } from "vitest";
import { egressRules } from "../url-guard/address.ts";
import { RobotsCache } from "./robots-cache.ts";
import { robotsGate } from "./robots-gate.ts";

test("rule 3.14: a robots.txt is waited for no longer where no connection to its site stands", async () => {
  const dispatcher = new Agent({
    connect: () => {
      // As where a firewall drops what is sent there.
    },
  });
  const gate = robotsGate({
    cache: new RobotsCache(),
    organizationId: "org_a",
    scope: "policy 1",
    egress: egressRules({ allowCidrs: [], allowPorts: [] }),
    dispatcher,
    timeoutMs: 400,
    signal: new AbortController().signal,
  });
  try {
    expect(await gate.allows(new URL("https://example.com/page"))).toBe(false);
  } finally {
    await dispatcher.destroy();
  }
}, 10_000);
