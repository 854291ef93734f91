import { expect, test } from "vitest";
import { allowCIDRs } from "./egress.ts";

const refusal = (entry: string) => allowCIDRs().safeParse([entry]).error?.issues[0]?.message;

test.each([
  ["169.254.0.0/16", "169.254.0.0/16"],
  ["0.0.0.0/0", "0.0.0.0/8"],
  ["fd00::/8", "fd00:ec2::/32"],
  ["2000::/3", "2001::/32"],
])("of %s it is told that it holds %s", (entry, held) => {
  expect(refusal(entry)).toContain(` it holds ${held}`);
});

test.each([
  ["169.254.169.254/32", "169.254.0.0/16"],
  ["224.0.0.0/24", "224.0.0.0/4"],
  ["64:ff9b::a00:1/128", "64:ff9b::/96"],
])("of %s it is told that it lies in %s", (entry, around) => {
  expect(refusal(entry)).toContain(` it lies in ${around}`);
});

test.each(["10.0.0.0", "example.com"])(
  "the networks that the refusal of %j gives as examples may be named",
  (entry) => {
    const examples = refusal(entry)?.match(/[0-9a-f:.]+\/\d+/g) ?? [];
    expect(examples.length).toBeGreaterThan(1);
    expect(allowCIDRs().safeParse(examples).error).toBeUndefined();
  },
);

test.each(["10.0.0.0/08", "fd12::/016"])(
  "%s is refused in a folder too: the API server takes no prefix with a zero in front",
  (entry) => {
    expect(refusal(entry)).toContain("must be a network, such as");
  },
);
