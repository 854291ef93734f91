/** The range of days of a report, and the other parts of its address. */
import type { ComponentProps } from "preact";
import { useEffect, useState } from "preact/hooks";
import { addDays, dayOf, daysBetween, isDay } from "../lib/days.ts";
import type { Range } from "../lib/reports.ts";
import { refine } from "../router.ts";
import { useTexts } from "../texts/texts.ts";
import { Field } from "./basics.tsx";

const USUAL_DAYS = 30;
/** The longest range that a view shows quickly (docs/console.md). */
const MOST_DAYS = 400;
/** Days of the ranges that end today. */
const usualRanges = [1, 7, USUAL_DAYS, 90, MOST_DAYS];

/** Returns the range of an address; a missing or invalid part defaults to the last thirty days. */
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
      <DayField
        label={t.reports.from}
        value={range.from}
        min={addDays(range.to, 1 - MOST_DAYS)}
        max={range.to}
        onInput={(from) => refine({ from })}
      />
      <DayField label={t.reports.to} value={range.to} min={range.from} onInput={(to) => refine({ to })} />
    </>
  );
}

/** A field for a day that keeps what is typed while it is no day yet, however often it is drawn. */
function DayField({ value, onInput, ...rest }: Omit<ComponentProps<typeof Field>, "type">) {
  const [draft, setDraft] = useState<string | null>(null);
  useEffect(() => setDraft(null), [value]);
  return (
    <Field
      type="date"
      value={draft ?? value}
      onInput={(text) => {
        setDraft(isDay(text) ? null : text);
        if (isDay(text)) onInput(text);
      }}
      {...rest}
    />
  );
}

/** Buttons for the most common ranges. */
export function RangeChoice({ range }: { range: Range }) {
  const t = useTexts();
  const today = dayOf(Date.now());
  return (
    <div class="tabs" role="group" aria-label={t.reports.range}>
      {usualRanges.map((days) => {
        const from = addDays(today, 1 - days);
        return (
          <button
            key={days}
            type="button"
            class="button"
            aria-pressed={range.from === from && range.to === today}
            onClick={() => refine({ from, to: today })}
          >
            {days === 1 ? t.reports.today : t.reports.lastDays(days)}
          </button>
        );
      })}
    </div>
  );
}

export const daysOf = ({ from, to }: Range): string[] =>
  Array.from({ length: daysBetween(from, to) }, (_, index) => addDays(from, index));
