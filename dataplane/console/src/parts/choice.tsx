/** Fields that choose one of several: a list to open, or where that would be too long, a field that finds by name. */
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { formatCount, useTexts } from "../texts/texts.ts";

interface ChoiceProps {
  readonly label: string;
  readonly value: string;
  readonly onInput: (value: string) => void;
  /** Values and their names. */
  readonly choices: readonly (readonly [string, string])[];
}

/** The most choices that a person is given as a list. */
const MOST_LISTED = 200;
/** The most names that are offered for what was typed. */
const MOST_OFFERED = 50;

export function Choice(props: ChoiceProps) {
  return props.choices.length > MOST_LISTED ? <FoundChoice {...props} /> : <ListedChoice {...props} />;
}

function ListedChoice({ label, value, onInput, choices }: ChoiceProps) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select id={id} value={value} onInput={(event) => onInput(event.currentTarget.value)}>
        {choices.map(([name, title]) => (
          <option key={name} value={name} selected={name === value}>
            {title}
          </option>
        ))}
      </select>
    </div>
  );
}

/** A field that offers the names that hold what is typed. A whole name, or a value such as an id, chooses it at once. */
function FoundChoice({ label, value, onInput, choices }: ChoiceProps) {
  const t = useTexts();
  const id = useId();
  const input = useRef<HTMLInputElement>(null);
  /** What is typed, with the value that was chosen then. */
  const [typed, setTyped] = useState<{ readonly text: string; readonly chosen: string } | null>(null);
  /** What is typed, until something is chosen or the field is left (`leave`); null: the field shows what is chosen. */
  const draft = typed?.chosen === value ? typed.text : null;
  const found = choices.filter(([name, title]) => name !== "" && holds(name, title, draft ?? ""));
  const chosen = value === "" ? "" : nameOf(choices, value);
  const hint = found.length === 0 ? t.common.noneFound : t.common.found(formatCount(found.length, t));
  // A form is not sent while its field shows what is no choice.
  useLayoutEffect(() => input.current?.setCustomValidity(draft === null ? "" : hint), [draft, hint]);
  const type = (text: string) => {
    const one = choices.find(
      ([name, title]) => text === (name === "" ? "" : oneLine(title)) || text === name,
    );
    setTyped(one === undefined ? { text, chosen: value } : null);
    if (one !== undefined) onInput(one[0]);
  };
  const leave = (isInForm: boolean) => {
    // Whoever goes on to the form's button would send what was chosen before, and not see that it came back.
    if (!isInForm || draft?.trim() === "") setTyped(null);
  };
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input
        id={id}
        ref={input}
        list={`${id}-found`}
        value={draft ?? chosen}
        placeholder={choices.find(([name]) => name === "")?.[1]}
        autocomplete="off"
        spellcheck={false}
        aria-describedby={draft === null ? undefined : `${id}-hint`}
        onFocus={(event) => event.currentTarget.select()}
        onBlur={(event) => leave(event.currentTarget.form !== null)}
        onInput={(event) => type(event.currentTarget.value)}
      />
      <datalist id={`${id}-found`}>
        {found.slice(0, MOST_OFFERED).map(([name, title]) => (
          <option key={name} value={oneLine(title)} />
        ))}
      </datalist>
      {/* The browser lists what is found beneath the field, which must not move while somebody types. A reader of the screen
        tells only what changes in an element that is there before. */}
      <p class={draft !== null && found.length === 0 ? "hint" : "unseen"} id={`${id}-hint`} role="status">
        {draft === null ? "" : hint}
      </p>
    </div>
  );
}

/** A name as a field of one line holds it. */
const oneLine = (title: string): string => title.replaceAll(/[\r\n]/g, "");

const holds = (name: string, title: string, text: string): boolean =>
  [oneLine(title), name].some((one) => one.toLowerCase().includes(text.trim().toLowerCase()));

const nameOf = (choices: ChoiceProps["choices"], value: string): string =>
  oneLine(choices.find(([name]) => name === value)?.[1] ?? value);

interface IdChoiceProps extends Omit<ChoiceProps, "choices"> {
  readonly things: readonly { readonly id: string; readonly name: string }[];
}

/** A filter: all, or one by its name. An address may name one that is not there: deleted since, or on another page of a list. */
export function IdChoice({ things, ...choice }: IdChoiceProps) {
  const t = useTexts();
  const { value } = choice;
  const isUnknown = value !== "" && !things.some(({ id }) => id === value);
  const known = things.map(({ id, name }) => [id, name] as const);
  return (
    <Choice
      {...choice}
      choices={[["", t.common.all], ...(isUnknown ? [[value, value] as const] : []), ...known]}
    />
  );
}
