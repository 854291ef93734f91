/** A place to try a model, or two side by side, with the same calls as a program. */
import { useEffect, useState } from "preact/hooks";
import { useLoad } from "../lib/load.ts";
import { readModels } from "../lib/models.ts";
import { asCurl, dialects, type PlayDialect, type Question } from "../lib/playground.ts";
import { useStore } from "../lib/store.ts";
import { Button, Check, Empty, Section, TextArea } from "../parts/basics.tsx";
import { Choice } from "../parts/choice.tsx";
import { InferenceGate } from "../parts/inference-gate.tsx";
import { Code } from "../parts/snippets.tsx";
import { place, refine } from "../router.ts";
import { useTexts } from "../texts/texts.ts";
import { OneAnswer } from "./one-answer.tsx";
import { Conversation, Images, noTools, Tools, toolsOf, type Said } from "./question-parts.tsx";

export default function Playground() {
  const t = useTexts();
  return (
    <>
      <p class="muted">{t.playground.intro}</p>
      <InferenceGate>
        <Bench />
      </InferenceGate>
    </>
  );
}

function Bench() {
  const t = useTexts();
  const models = useLoad(readModels, []);
  return (
    <Section loaded={models}>
      {(list) =>
        list.length === 0 ? <Empty title={t.models.empty} /> : <Form models={list.map(({ id }) => id)} />
      }
    </Section>
  );
}

/** One press of the button; its number is new each time, so that every pane starts afresh. */
interface Asking {
  readonly number: number;
  readonly questions: readonly Question[];
}

function Form({ models }: { models: readonly string[] }) {
  const t = useTexts();
  const { query } = useStore(place);
  const [system, setSystem] = useState("");
  const [text, setText] = useState("");
  const [images, setImages] = useState<readonly string[]>([]);
  const [turns, setTurns] = useState<readonly Said[]>([]);
  /** Answers to the running or last question, by pane; null: it has not ended. */
  const [answers, setAnswers] = useState<readonly (string | null)[]>([]);
  /** Grows when the button that begins or continues a conversation disappears, so that the next question takes the focus. */
  const [focus, setFocus] = useState(0);
  const [tools, setTools] = useState(noTools);
  const [isCode, setIsCode] = useState(false);
  const [asking, setAsking] = useState<Asking | null>(null);
  const [running, setRunning] = useState(0);
  const [stopper, setStopper] = useState(() => new AbortController());
  useEffect(() => () => stopper.abort(), [stopper]);
  const known = (name: string) => models.find((one) => one === query.get(name));
  const model = known("model") ?? models[0] ?? "";
  const dialect = dialects.find((one) => one === query.get("dialect")) ?? "messages";
  const other = known("compare");
  const question = (asked: string, pane: number): Question => ({
    dialect,
    model: asked,
    system,
    // A second model that was added later gets the first one's answers.
    earlier: turns.map((turn) => ({ ...turn, answer: turn.answers[pane] ?? turn.answers[0] ?? "" })),
    text,
    images,
    ...toolsOf(dialect, tools),
  });
  const questions = [model, ...(other === undefined ? [] : [other])].map(question);
  const ask = () => {
    setStopper(new AbortController());
    setRunning(questions.length);
    setAnswers(questions.map(() => null));
    setAsking({ number: (asking?.number ?? 0) + 1, questions });
  };
  const answered = answers.flatMap((answer) => (answer === null || answer.trim() === "" ? [] : [answer]));
  const askFurther = () => {
    const last = asking?.questions[0];
    setTurns([...turns, { text: last?.text ?? "", images: last?.images ?? [], answers: answered }]);
    setAsking(null);
    setAnswers([]);
    setText("");
    setImages([]);
    setFocus(focus + 1);
  };
  const beginAnew = () => {
    setTurns([]);
    setAsking(null);
    setAnswers([]);
    setFocus(focus + 1);
  };
  return (
    <div class="two bench">
      <form
        class="card stack"
        method="post"
        onSubmit={(event) => {
          event.preventDefault();
          if (running === 0 && text.trim() !== "") ask();
        }}
      >
        <ModelFields models={models} dialect={dialect} model={model} other={other} />
        <TextArea label={t.playground.system} value={system} onInput={setSystem} rows={2} />
        {turns.length > 0 && <Conversation turns={turns} onForget={beginAnew} isRunning={running > 0} />}
        <TextArea label={t.playground.message} value={text} onInput={setText} rows={5} focus={focus} />
        <Images images={images} onChange={setImages} />
        <Tools tools={tools} dialect={dialect} onChange={setTools} />
        <div class="row">
          <Button submits kind="primary" disabled={running > 0 || text.trim() === ""}>
            {t.playground.send}
          </Button>
          <Button disabled={running === 0} onClick={() => stopper.abort()}>
            {t.playground.stop}
          </Button>
          <Button onClick={() => setIsCode(!isCode)}>{t.playground.asCode}</Button>
          {answers.length > 0 && answered.length === answers.length && (
            <Button onClick={askFurther}>{t.playground.further}</Button>
          )}
        </div>
        {isCode &&
          questions.map((one, index) => (
            <Code key={index} text={asCurl(one, location.origin)} of={`${index + 1}. ${one.model}`} />
          ))}
      </form>
      {asking === null ? (
        <Empty title={t.playground.nothing} />
      ) : (
        asking.questions.map((one, index) => (
          <OneAnswer
            key={`${asking.number}-${index}`}
            question={one}
            signal={stopper.signal}
            onEnd={(answer) => {
              setRunning((count) => count - 1);
              setAnswers((before) => before.with(index, answer));
            }}
          />
        ))
      )}
    </div>
  );
}

interface ModelFieldsProps {
  readonly models: readonly string[];
  readonly dialect: PlayDialect;
  readonly model: string;
  /** The second model; undefined: none. */
  readonly other: string | undefined;
}

/** The fields that choose the models and the dialect. */
function ModelFields({ models, dialect, model, other }: ModelFieldsProps) {
  const t = useTexts();
  const choices = models.map((one) => [one, one] as const);
  return (
    <>
      <div class="filters">
        <Choice
          label={t.playground.dialect}
          value={dialect}
          onInput={(chosen) => refine({ dialect: chosen })}
          choices={[
            ["messages", "Messages"],
            ["chat", "Chat Completions"],
            ["responses", "Responses"],
          ]}
        />
        <Choice
          label={t.reports.groups.model}
          value={model}
          onInput={(chosen) => refine({ model: chosen })}
          choices={choices}
        />
      </div>
      <Check
        label={t.playground.compare}
        checked={other !== undefined}
        onInput={(checked) => refine({ compare: checked ? (models[1] ?? models[0] ?? "") : "" })}
      />
      {other !== undefined && (
        <Choice
          label={t.playground.other}
          value={other}
          onInput={(compare) => refine({ compare })}
          choices={choices}
        />
      )}
    </>
  );
}
