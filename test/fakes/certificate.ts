/**
 * Certificates for tests of TLS: self-signed, or of a private authority, made anew each time so that no
 * private key lies in the repository. Just enough DER for X.509 v3 (RFC 5280).
 */
import { generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { isIPv4 } from "node:net";

const der = (tag: number, ...parts: readonly Buffer[]): Buffer => {
  const content = Buffer.concat(parts);
  const { length } = content;
  const size =
    length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...size]), content]);
};
const sequence = (...parts: readonly Buffer[]) => der(0x30, ...parts);
const oid = (...bytes: readonly number[]) => der(0x06, Buffer.from(bytes));
const integer = (bytes: Buffer) => der(0x02, bytes);
const timeText = (moment: Date | undefined) => moment?.toISOString().replace(/[-:T]|\.\d+/g, "");
const utf8 = (text: string) => der(0x0c, Buffer.from(text));
const time = (text: string) => der(0x18, Buffer.from(text));

const ecdsaWithSha256 = sequence(oid(0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02));
const commonName = oid(0x55, 0x04, 0x03);
const organizationName = oid(0x55, 0x04, 0x0a);
const subjectAltName = oid(0x55, 0x1d, 0x11);
const basicConstraints = oid(0x55, 0x1d, 0x13);

export interface Certificate {
  /** PEM. */
  readonly key: string;
  readonly cert: string;
}

/** For these names and IPv4 addresses, valid from 2020 to 2100; the certificate is its own authority. */
export function selfSigned(names: readonly string[]): Certificate {
  const own = authority(names[0] ?? "");
  return own.sign(names, { isAuthority: true, keys: own.keys });
}

/** A certificate authority that nobody knows, and what it signs. */
export function privateAuthority(name: string): {
  /** PEM, for `NODE_EXTRA_CA_CERTS`. */
  readonly cert: string;
  /** The first name is the common name too. */
  issue(names: readonly string[], more?: Pick<Subject, "organization" | "notAfter">): Certificate;
} {
  const { keys, sign: certify } = authority(name);
  return {
    cert: certify([name], { isAuthority: true, keys }).cert,
    issue: (names, more = {}) => certify(names, { isAuthority: false, keys: newKeys(), ...more }),
  };
}

interface Subject {
  readonly isAuthority: boolean;
  readonly keys: ReturnType<typeof newKeys>;
  /** What Kubernetes takes for a user's group. */
  readonly organization?: string;
  /** In whole seconds; without it 2100. */
  readonly notAfter?: Date;
}

const newKeys = () => generateKeyPairSync("ec", { namedCurve: "P-256" });
const distinguished = (name: string, organization?: string) =>
  sequence(
    ...(organization === undefined ? [] : [der(0x31, sequence(organizationName, utf8(organization)))]),
    der(0x31, sequence(commonName, utf8(name))),
  );

function authority(name: string) {
  const keys = newKeys();
  return {
    keys,
    sign: (
      names: readonly string[],
      { isAuthority, keys: { privateKey, publicKey }, organization, notAfter }: Subject,
    ): Certificate => {
      const alternatives = sequence(
        ...names.map((one) =>
          isIPv4(one) ? der(0x87, Buffer.from(one.split(".").map(Number))) : der(0x82, Buffer.from(one)),
        ),
      );
      const constraints = sequence(...(isAuthority ? [der(0x01, Buffer.from([0xff]))] : []));
      const extensions = sequence(
        sequence(basicConstraints, der(0x04, constraints)),
        sequence(subjectAltName, der(0x04, alternatives)),
      );
      const body = sequence(
        der(0xa0, integer(Buffer.from([2]))),
        integer(Buffer.concat([Buffer.from([0x01]), randomBytes(8)])),
        ecdsaWithSha256,
        distinguished(name),
        sequence(time("20200101000000Z"), time(timeText(notAfter) ?? "21000101000000Z")),
        distinguished(names[0] ?? "", organization),
        publicKey.export({ type: "spki", format: "der" }),
        der(0xa3, extensions),
      );
      const signature = der(0x03, Buffer.from([0]), sign("sha256", body, keys.privateKey));
      const base64 = sequence(body, ecdsaWithSha256, signature).toString("base64");
      const lines = base64.match(/.{1,64}/g) ?? [];
      return {
        key: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
        cert: `-----BEGIN CERTIFICATE-----\n${lines.join("\n")}\n-----END CERTIFICATE-----\n`,
      };
    },
  };
}
