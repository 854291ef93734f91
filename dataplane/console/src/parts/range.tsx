/** The range of days of a report, and what else stands in its address. */
import { addDays, dayOf, daysBetween, isDay } from "../lib/days.ts";
import type { Range } from "../lib/reports.ts";
import { refine } from "../router.ts";
import { useTexts } from "../texts/texts.ts";
import { Field } from "./basics.tsx";

const USUAL_DAYS = 30;
/** As far as one report reaches. */
const MOST_DAYS = 366;

/** Of an address; whatever it lacks or has wrong is the last thirty days. */
export function rangeOf(query: URLSearchParams, now: number): Range {
  const to = query.get("to");
  const last = isDay(to) ? to : dayOf(now);
  const from = query.get("from");
  const first = isDay(from) && from <= last ? from : addDays(last, 1 - USUAL_DAYS);
  return { from: daysBetween(first, last) > MOST_DAYS ? addDays(last, 1 - MOST_DAYS) : first, to: last };
}

export function RangeFields({ range }: { range: Range }) {
  const t = useTexts();
  return (
    <>
      <Field
        label={t.reports.from}
        type="date"
        value={range.from}
        max={range.to}
        onInput={(from) => isDay(from) && refine({ from })}
      />
      <Field
        label={t.reports.to}
        type="date"
        value={range.to}
        min={range.from}
        onInput={(to) => isDay(to) && refine({ to })}
      />
    </>
  );
}

export const daysOf = ({ from, to }: Range): string[] =>
  Array.from({ length: daysBetween(from, to) }, (_, index) => addDays(from, index));
