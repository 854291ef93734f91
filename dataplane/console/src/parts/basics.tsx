/** Small pieces that every view is made of. */
import type { ComponentChildren } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { ApiProblem } from "../api/client.ts";
import { minute, momentOf } from "../lib/days.ts";
import type { Loaded } from "../lib/load.ts";
import { addressOf, go, type View } from "../router.ts";
import { useTexts } from "../texts/texts.ts";
import { wordsOf } from "../texts/words-of.ts";

interface Children {
  readonly children: ComponentChildren;
}

interface ButtonProps extends Children {
  readonly onClick?: () => void;
  readonly kind?: "primary" | "danger" | "plain" | "quiet";
  readonly submits?: boolean;
  readonly disabled?: boolean;
}

/** A button. A disabled one can still have the focus, so that nobody's place is lost while something loads. */
export function Button({ children, onClick, kind = "plain", submits, disabled }: ButtonProps) {
  return (
    <button
      type={submits === true && disabled !== true ? "submit" : "button"}
      class={`button ${kind}`}
      onClick={disabled === true ? undefined : onClick}
      aria-disabled={disabled === true ? true : undefined}
    >
      {children}
    </button>
  );
}

/** A link inside of the console. */
export function ViewLink({
  to,
  query,
  children,
  current = false,
}: Children & { to: View; query?: Record<string, string>; current?: boolean }) {
  const address = addressOf(to, query);
  return (
    <a
      href={address}
      aria-current={current ? "page" : undefined}
      onClick={(event) => {
        if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
        event.preventDefault();
        go(address);
      }}
    >
      {children}
    </a>
  );
}

interface FieldProps {
  readonly label: string;
  readonly value: string;
  readonly onInput: (value: string) => void;
  readonly type?: "text" | "password" | "search" | "date" | "datetime-local" | "month";
  readonly hint?: string;
  readonly required?: boolean;
  readonly autofocus?: boolean;
  readonly max?: string;
  readonly min?: string;
  readonly pattern?: string;
  readonly inputMode?: "decimal" | "numeric";
}

export function Field({
  label,
  value,
  onInput,
  type = "text",
  hint,
  autofocus = false,
  ...rest
}: FieldProps) {
  const id = useId();
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (autofocus) input.current?.focus();
  }, [autofocus]);
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input
        id={id}
        ref={input}
        // The types of the other attributes depend on `type`; the given ones fit it.
        {...({ type } as { type: "text" })}
        value={value}
        autocomplete="off"
        spellcheck={false}
        aria-describedby={hint === undefined ? undefined : `${id}-hint`}
        onInput={(event) => onInput(event.currentTarget.value)}
        {...rest}
      />
      {hint !== undefined && (
        <p class="hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
    </div>
  );
}

interface TextAreaProps {
  readonly label: string;
  readonly value: string;
  readonly onInput: (value: string) => void;
  readonly rows?: number;
  /** The area takes the focus whenever this number grows. */
  readonly focus?: number;
}

export function TextArea({ label, value, onInput, rows = 3, focus = 0 }: TextAreaProps) {
  const id = useId();
  const area = useRef<HTMLTextAreaElement>(null);
  // A layout effect, in the same drawing that removed the focused element: at no moment is the focus lost.
  useLayoutEffect(() => {
    if (focus > 0) area.current?.focus();
  }, [focus]);
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <textarea
        id={id}
        ref={area}
        rows={rows}
        value={value}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
    </div>
  );
}

interface CheckProps {
  readonly label: string;
  readonly checked: boolean;
  readonly onInput: (checked: boolean) => void;
  readonly disabled?: boolean;
}

export function Check({ label, checked, onInput, disabled }: CheckProps) {
  return (
    <label class="check">
      <input
        type="checkbox"
        checked={checked}
        disabled={disabled}
        onInput={(event) => onInput(event.currentTarget.checked)}
      />
      {label}
    </label>
  );
}

/** A button that copies a text, and shows whether it succeeded. */
export function CopyButton({ text }: { text: string }) {
  const t = useTexts();
  const [outcome, setOutcome] = useState<"copied" | "notCopied" | null>(null);
  useEffect(() => {
    if (outcome !== "copied") return undefined;
    const timer = setTimeout(() => setOutcome(null), 2000);
    return () => clearTimeout(timer);
  }, [outcome]);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setOutcome("copied");
    } catch {
      setOutcome(copyBySelection(text) ? "copied" : "notCopied");
    }
  };
  return (
    <>
      <Button kind="quiet" onClick={() => void copy()}>
        {t.common[outcome ?? "copy"]}
      </Button>
      <span class="unseen" role="status">
        {outcome === null ? "" : t.common[outcome]}
      </span>
    </>
  );
}

/** Copies a selection: without TLS browsers give a page no other access to the clipboard. @returns whether it was copied. */
function copyBySelection(text: string): boolean {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "unseen";
  const home = document.querySelector("dialog[open]") ?? document.body;
  home.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  return isCopied;
}

/** An error in words, with the id of its request. */
export function Problem({ problem, again }: { problem: Error; again?: () => void }) {
  const t = useTexts();
  const known = problem instanceof ApiProblem ? problem : null;
  return (
    <div class="notice bad" role="alert">
      <p>{wordsOf(problem, t)}</p>
      {known !== null && known.requestId !== null && (
        <p class="hint">{t.common.requestId(known.requestId)}</p>
      )}
      {again !== undefined && <Button onClick={again}>{t.common.tryAgain}</Button>}
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}

/** A part of a view that is being loaded, has failed or is shown. `busy`: something else that it needs is being loaded. */
export function Section<Value>({
  loaded,
  busy: isBusy = false,
  children,
}: {
  readonly loaded: Loaded<Value>;
  readonly busy?: boolean;
  readonly children: (value: Value) => ComponentChildren;
}) {
  const { value, problem, busy, isStale, again } = loaded;
  const t = useTexts();
  return (
    <section class={isStale ? "section stale" : "section"} aria-busy={busy || isBusy}>
      {problem !== null && <Problem problem={problem} again={again} />}
      {value === null
        ? busy && (
            <div class="skeleton" role="status">
              <span class="unseen">{t.common.loading}</span>
            </div>
          )
        : children(value)}
    </section>
  );
}

export function Badge({ kind, children }: Children & { kind: "good" | "bad" | "warn" | "calm" }) {
  return <span class={`badge ${kind}`}>{children}</span>;
}

/** A time of the API, as UTC to the minute. */
export function Moment({ at }: { at: string | number }) {
  const text = minute(momentOf(at));
  return (
    <time class="moment-text" datetime={`${text.replace(" ", "T")}Z`}>
      {text}
    </time>
  );
}

interface MeterProps {
  readonly label: string;
  /** The exact figures, where no text next to the bar shows them. */
  readonly text?: string;
  readonly value: number;
  readonly most: number;
}

/** How much of something is used, as a bar that warns near its end. */
export function Meter({ label, text, value, most }: MeterProps) {
  const share = most === 0 ? 1 : Math.min(1, value / most);
  return (
    <span
      class={share >= 0.9 ? "meter full" : "meter"}
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={most}
      aria-valuenow={Math.min(value, most)}
      aria-valuetext={text}
    >
      <span style={{ width: `${100 * share}%` }} />
    </span>
  );
}

/** Characters above which a figure is written smaller where there is little room. */
const LONG_FIGURE = 20;

/** One figure with its name. */
export function Figure({
  name,
  value,
  unit,
  note,
}: {
  name: string;
  value: string;
  unit?: string;
  note?: string;
}) {
  return (
    <div class="stat">
      <dt>{name}</dt>
      <dd>
        <span class={value.length > LONG_FIGURE ? "stat-value long" : "stat-value"}>{value}</span>
        {unit !== undefined && <span class="stat-unit"> {unit}</span>}
        {note !== undefined && <span class="stat-note">{note}</span>}
      </dd>
    </div>
  );
}
