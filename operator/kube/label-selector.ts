/** The form of a label selector: one that no API server accepts is refused where it is set. */
import { z } from "zod";
import { labelPatterns } from "../api/labels.ts";

const { key, value } = labelPatterns;
const requirement = new RegExp(
  `^(?:!\\s*${key}|${key}|${key}\\s*(?:==?|!=)\\s*${value}|${key}\\s+(?:not)?in\\s*\\(\\s*${value}\\s*(?:,\\s*${value}\\s*)*\\))$`,
);

/** Returns the schema of a label selector. An empty one, which would take every pod for ours, is refused. */
export const labelSelector = () =>
  z
    .string()
    .max(4_096)
    .refine((text) => requirementsOf(text).every((one) => requirement.test(one)), {
      error: 'must be a label selector, such as "app.kubernetes.io/name=gapura,tier in (a, b)"',
    });

/** Splits at the commas between requirements, not at those within the brackets of one. */
const requirementsOf = (text: string): string[] => text.split(/,(?![^(]*\))/).map((one) => one.trim());
