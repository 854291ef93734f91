/**
 * A certificate of one's own for tests of TLS: self-signed, for the given names, made anew each time so that no
 * private key lies in the repository. Just enough DER for X.509 v3 (RFC 5280).
 */
import { generateKeyPairSync, randomBytes, sign } from "node:crypto";

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
const utf8 = (text: string) => der(0x0c, Buffer.from(text));
const time = (text: string) => der(0x18, Buffer.from(text));

const ecdsaWithSha256 = sequence(oid(0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02));
const commonName = oid(0x55, 0x04, 0x03);
const subjectAltName = oid(0x55, 0x1d, 0x11);
const basicConstraints = oid(0x55, 0x1d, 0x13);

/** PEM key and certificate, valid from 2020 to 2100; the certificate is its own authority. */
export function selfSigned(names: readonly string[]): { key: string; cert: string } {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const name = sequence(der(0x31, sequence(commonName, utf8(names[0] ?? ""))));
  const dnsNames = sequence(...names.map((dns) => der(0x82, Buffer.from(dns))));
  const authority = sequence(der(0x01, Buffer.from([0xff])));
  const extensions = sequence(
    sequence(basicConstraints, der(0x04, authority)),
    sequence(subjectAltName, der(0x04, dnsNames)),
  );
  const body = sequence(
    der(0xa0, integer(Buffer.from([2]))),
    integer(Buffer.concat([Buffer.from([0x01]), randomBytes(8)])),
    ecdsaWithSha256,
    name,
    sequence(time("20200101000000Z"), time("21000101000000Z")),
    name,
    publicKey.export({ type: "spki", format: "der" }),
    der(0xa3, extensions),
  );
  const signature = der(0x03, Buffer.from([0]), sign("sha256", body, privateKey));
  const bytes = sequence(body, ecdsaWithSha256, signature);
  const lines = bytes.toString("base64").replace(/.{64}/g, "$&\n");
  return {
    key: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
    cert: `-----BEGIN CERTIFICATE-----\n${lines}\n-----END CERTIFICATE-----\n`,
  };
}
