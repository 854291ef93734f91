/** The language of the page, and figures in its notation. English is part of the page, others are loaded when chosen. */
import { formatDecimal, rupiahOf } from "../lib/decimal.ts";
import { browserStorage } from "../lib/storage.ts";
import { Store, useStore } from "../lib/store.ts";
import { en, type Texts } from "./en.ts";

export const languages = [
  ["en", "English"],
  ["id", "Bahasa Indonesia"],
] as const;
type Language = (typeof languages)[number][0];

const KEPT_LANGUAGE = "gapura-language";
const texts = new Store<Texts>(en);
export const language = new Store<Language>("en");

export const useTexts = (): Texts => useStore(texts);

export async function chooseLanguage(name: string): Promise<void> {
  const known = languages.find(([code]) => code === name)?.[0] ?? "en";
  browserStorage?.setItem(KEPT_LANGUAGE, known);
  const chosen = known === "id" ? (await import("./id.ts")).id : en;
  document.documentElement.lang = known;
  language.set(known);
  texts.set(chosen);
}

export const keptLanguage = (): string => browserStorage?.getItem(KEPT_LANGUAGE) ?? "en";

export const formatCount = (count: number, { separators }: Texts): string =>
  formatDecimal(String(count), separators);
/** Formats a label of an axis: rounded to three significant digits. */
export const formatTick = (value: number, of: Language): string =>
  new Intl.NumberFormat(of, { notation: "compact", maximumSignificantDigits: 3 }).format(value);
/** Formats credits in full, down to the micro-credit. */
export const formatCredits = (credits: string, { separators }: Texts): string =>
  formatDecimal(credits, separators);
export const formatRupiah = (credits: string, { separators }: Texts): string =>
  `Rp ${formatDecimal(rupiahOf(credits), separators)}`;
export const formatBytes = (bytes: number, t: Texts): string => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const written = (power: number) => (bytes / 1024 ** power).toFixed(power === 0 ? 0 : 1);
  // The rounded text decides: what rounds to 1,024.0 of a unit is 1.0 of the next.
  const power = units.findIndex((_, index) => Number(written(index)) < 1024 || index === units.length - 1);
  return `${formatDecimal(written(power), t.separators)} ${units[power] ?? ""}`;
};
