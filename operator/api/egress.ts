/** Fields that allow more than the public internet on ports 80 and 443 to be reached (rules 3.16, 9.8). */
import { z } from "zod";
import { cidrFault, parseCidr } from "./cidr.ts";
import { field, set, withRules } from "./fields.ts";

const NEVER_OPENED =
  "must be a network that holds no link-local, cloud-metadata, multicast or unspecified address, and no IPv4 address in IPv6 form";

export const allowCIDRs = () =>
  field(
    set(
      withRules(
        z
          .string()
          .min(1)
          .max(64)
          .regex(/^[0-9A-Fa-f:.]+\/[0-9]{1,3}$/, "must be a network such as 10.0.0.0/8 or fd12:3456::/32"),
        [
          {
            cel: "isCIDR(self)",
            message: "must be a network, such as 10.20.0.0/16",
            fault: (entry) => (parseCidr(entry) === null ? [] : null),
          },
          {
            cel: null,
            message: NEVER_OPENED,
            naming: { of: (entry) => `${NEVER_OPENED}: it ${cidrFault(entry)}` },
            fault: (entry) => (parseCidr(entry) !== null && cidrFault(entry) !== null ? [] : null),
          },
        ],
      ),
      64,
    ),
    "Networks beside the public internet, for an intranet; never link-local or cloud metadata.",
    { example: ["10.20.0.0/16"] },
  ).optional();

export const allowPorts = () =>
  field(set(z.int().min(1).max(65_535), 64), "Ports beside 80 and 443.", { example: [8443] }).optional();
