/** Which tokens an Organization accepts in addition to keys, and with which roles (rules 13.1, 13.3). */
import { z } from "zod";
import { allowCIDRs, allowPorts } from "./egress.ts";
import { callable, entryName, field, set, withRules } from "./fields.ts";
import { DEFAULT_PROJECT, limitFields } from "./limits.ts";

/** An https:// address; an issuer's is compared with the tokens' letter by letter. */
const httpsUrl = () =>
  withRules(
    z
      .string()
      .max(512)
      .regex(
        /^https:\/\/[-._~%:[\]A-Za-z0-9]+(\/[^?#\s]*)?$/,
        "must be an https:// address without user, query and fragment",
      ),
    [callable],
  );

const identityRule = withRules(
  z.strictObject({
    claims: field(
      withRules(z.record(z.string().min(1).max(256), z.string().max(256)), [
        {
          cel: null,
          message: "may name at most 16 claims",
          fault: (claims) => (Object.keys(claims).length > 16 ? [] : null),
        },
      ]),
      "What the token must say: each claim equals its value, or is a list that has it. A name with dots is a path. Empty or absent: every token of the audiences.",
      { example: { groups: "ml-team" }, kubernetes: { maxProperties: 16 } },
    ).optional(),
    role: field(
      z.enum(["Member", "Viewer", "Admin"]),
      "Member: inference, files and batches. Viewer: reads the admin API. Admin: all of the admin API, and no inference.",
      { example: "Member" },
    ),
    project: field(entryName(), "Member only: the project that their work belongs to.", {
      default: DEFAULT_PROJECT,
    }).optional(),
    limits: limitFields(
      "Member only: what each person may at most, within what the project and the organization may.",
    ),
  }),
  [
    {
      cel: "self.role == 'Member' || (!has(self.project) && !has(self.limits))",
      message: "only the role Member has a project and limits",
      fault: ({ role, project, limits: limited }) => {
        if (role === "Member") return null;
        if (project !== undefined) return ["project"];
        return limited === undefined ? null : ["limits"];
      },
    },
  ],
);

const printable = (most: number) =>
  z
    .string()
    .min(1)
    .max(most)
    .regex(/^[!-~]+$/, "must be printable ASCII without spaces");

/** How people sign in to the console at the issuer (rule 11.2). No field is a secret. */
const consoleSignIn = z.strictObject({
  clientID: field(
    printable(256),
    "The console's client at the issuer: a public one, by authorization code with PKCE, without a secret.",
    { example: "gapura-console" },
  ),
  scopes: field(
    set(
      z
        .string()
        .max(256)
        .regex(/^[!#-[\]-~]+$/, "must be one scope, without spaces, quotes and backslashes"),
      16,
    ),
    "What the console asks for beside openid; offline_access where the issuer gives refresh tokens for it alone.",
    { example: ["offline_access"] },
  ).optional(),
  audience: field(
    printable(256),
    "Sent as the parameter audience, where the issuer chooses the token's audience by it.",
    { example: "gapura" },
  ).optional(),
  resource: field(
    printable(512).regex(/^[A-Za-z][-+.A-Za-z0-9]*:[^#]+$/, "must be an absolute URI without a fragment"),
    "Sent as the parameter resource (RFC 8707), where the issuer chooses the token's audience by it.",
    { example: "https://gapura.example.com" },
  ).optional(),
  origins: field(
    set(
      withRules(
        z
          .string()
          .max(256)
          .regex(
            /^https:\/\/[-._A-Za-z0-9]+(:[0-9]{1,5})?$/,
            "must be an origin such as https://oauth2.example.com",
          ),
        [callable],
      ),
      8,
    ),
    "Origins of the issuer's endpoints that are not its own, which the browser may call too.",
    { example: ["https://oauth2.example.com"] },
  ).optional(),
});

export const identity = z.strictObject({
  issuer: field(httpsUrl(), "Who signs the tokens: their claim iss, letter by letter.", {
    example: "https://login.example.com",
  }),
  audiences: field(
    set(z.string().min(1).max(256), 16).min(1),
    "For whom the tokens are: their claim aud is, or has, one of these.",
    { example: ["gapura"] },
  ),
  jwksURL: field(
    httpsUrl(),
    "Where the issuer's public keys are. Default: what its discovery document says.",
    { example: "https://login.example.com/keys" },
  ).optional(),
  allowCIDRs: field(
    allowCIDRs().unwrap(),
    "Networks of an issuer that is not on the public internet, with all their ports; never link-local or cloud metadata.",
  ).optional(),
  allowPorts: allowPorts(),
  console: field(
    consoleSignIn,
    "People sign in to the console at the issuer; absent: with a key alone.",
  ).optional(),
  rules: field(
    z.array(identityRule).min(1).max(100).meta({ "x-kubernetes-list-type": "atomic" }),
    "Who is what. The first one whose claims all match decides; a token that none matches answers 401.",
  ),
});
