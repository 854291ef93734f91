/** Limits of keys and projects: what is spent of them, and the fields that change them. */
import type { Limits, Standing } from "../api/schema.ts";
import { approximate, subtract } from "../lib/decimal.ts";
import { periods, type LimitsDraft } from "../lib/limits.ts";
import { formatCount, formatCredits, useTexts } from "../texts/texts.ts";
import { Field, Meter, Moment } from "./basics.tsx";
import { Choice } from "./choice.tsx";

/** The limits that hold, with what is spent of each as a bar. */
export function LimitsShown({
  limits,
  standing,
  of,
}: {
  readonly limits: Limits | null;
  readonly standing: readonly Standing[];
  /** The scope that is shown: a limit of the other scope is marked as such. */
  readonly of: Standing["scope"];
}) {
  const t = useTexts();
  const counted = [
    [limits?.requests_per_minute, t.limits.requestsAMinute],
    [limits?.tokens_per_minute, t.limits.tokensAMinute],
    [limits?.concurrent_requests, t.limits.atOnce],
  ] as const;
  const others = counted.flatMap(([count, words]) =>
    typeof count === "number" ? [words(formatCount(count, t))] : [],
  );
  if (limits?.models) others.push(limits.models.join(", "));
  if (standing.length === 0 && others.length === 0) return <>{t.common.none}</>;
  return (
    <span class="limits">
      {standing.map((one) => (
        <StandingBar key={one.scope} standing={one} isOwn={one.scope === of} />
      ))}
      {others.length > 0 && <span class="second">{others.join(" · ")}</span>}
    </span>
  );
}

function StandingBar({ standing, isOwn }: { standing: Standing; isOwn: boolean }) {
  const t = useTexts();
  const { amount, spent, held, left, per, begins_anew_at: anew } = standing;
  const [used, most] = [formatCredits(spent, t), formatCredits(amount, t)];
  const words = t.limits.spentOf(used, most, t.limits.per[per]);
  return (
    <span>
      {isOwn ? words : `${t.keys.project}: ${words}`}
      <Meter
        label={t.limits.bar}
        text={words}
        value={approximate(subtract(amount, left))}
        most={approximate(amount)}
      />
      {(held !== "0" || anew !== null) && (
        <span class="second">
          {held !== "0" && `${t.limits.held(formatCredits(held, t))} `}
          {anew !== null && (
            <>
              {t.limits.anew} <Moment at={anew} />
            </>
          )}
        </span>
      )}
    </span>
  );
}

interface LimitFieldsProps {
  readonly draft: LimitsDraft;
  readonly onInput: (draft: LimitsDraft) => void;
  readonly autofocus?: boolean;
}

export function CreditLimitFields({ draft, onInput, autofocus = false }: LimitFieldsProps) {
  const t = useTexts();
  return (
    <>
      <Field
        label={t.keys.limit}
        value={draft.amount}
        onInput={(amount) => onInput({ ...draft, amount })}
        inputMode="decimal"
        pattern={`[0-9]+([${t.separators.decimal}][0-9]+)?`}
        hint={t.keys.limitHint}
        autofocus={autofocus}
      />
      <Choice
        label={t.keys.per}
        value={draft.per}
        onInput={(chosen) => onInput({ ...draft, per: periods.find((one) => one === chosen) ?? "month" })}
        choices={periods.map((one) => [one, t.keys.periods[one]])}
      />
    </>
  );
}

export function OtherLimitFields({ draft, onInput }: LimitFieldsProps) {
  const t = useTexts();
  const count = (name: "requests" | "tokens" | "concurrent", label: string) => (
    <Field
      label={label}
      value={draft[name]}
      onInput={(value) => onInput({ ...draft, [name]: value })}
      inputMode="numeric"
      pattern="[1-9][0-9]{0,9}"
    />
  );
  return (
    <>
      <div class="three">
        {count("requests", t.limits.requests)}
        {count("tokens", t.limits.tokens)}
        {count("concurrent", t.limits.concurrent)}
      </div>
      <Field
        label={t.limits.models}
        value={draft.models}
        onInput={(models) => onInput({ ...draft, models })}
        hint={t.limits.modelsHint}
      />
    </>
  );
}
