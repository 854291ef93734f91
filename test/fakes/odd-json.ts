/** JSON as no library writes it, for tests of what reads it in place. */
import fc from "fast-check";

/** A JSON value written with odd white space, escapes and numbers, beside what it means. */
export const space = fc.constantFrom("", "", " ", "\n", "\t ", "\r\n  ");
const numberText = fc.oneof(
  fc.constantFrom("0", "-0", "1e5", "12345678901234567890123", "-1.50", "1E+2", "0.1e-7"),
  fc.integer().map(String),
);
const stringText = fc.oneof(
  fc.string({ unit: "grapheme", maxLength: 20 }).map((text) => JSON.stringify(text)),
  fc
    .string({ unit: fc.constantFrom("a", "é", "漢"), minLength: 60, maxLength: 300 })
    .map((text) => `"${text}"`),
  fc.constantFrom(
    String.raw`"\u006dodel"`,
    String.raw`"\ud800"`,
    String.raw`"\/\b\f\n\r\t\\\""`,
    '"__proto__"',
  ),
);
export const valueText: fc.Arbitrary<string> = fc.letrec<{ value: string }>((tie) => ({
  value: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    fc.constantFrom("true", "false", "null"),
    numberText,
    stringText,
    fc
      .tuple(fc.array(tie("value"), { maxLength: 4 }), space, space)
      .map(([items, before, after]) => `[${before}${items.join(`${after},${before}`)}${after}]`),
    fc
      .tuple(
        fc.uniqueArray(fc.tuple(fc.string({ maxLength: 6 }), tie("value")), {
          selector: ([key]) => key,
          maxLength: 4,
        }),
        space,
        space,
      )
      .map(
        ([entries, before, after]) =>
          `{${before}${entries.map(([key, value]) => `${JSON.stringify(key)}${after}:${before}${value}`).join(`${after},${before}`)}${after}}`,
      ),
  ),
})).value;
