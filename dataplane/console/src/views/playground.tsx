/** A place to try a model, or two beside each other, as a program would call it. */
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { send } from "../api/client.ts";
import { errorOf } from "../lib/error-of.ts";
import {
  advance,
  asCurl,
  dialects,
  nothingYet,
  readEvents,
  requestOf,
  type Play,
  type Question,
  type Turn,
} from "../lib/playground.ts";
import { useLoad } from "../lib/load.ts";
import { readModels } from "../lib/models.ts";
import { useStore } from "../lib/store.ts";
import { Button, Check, Choice, Empty, Problem, Section, TextArea } from "../parts/basics.tsx";
import { InferenceGate } from "../parts/inference-gate.tsx";
import { Markdown, SafeLink } from "../parts/markdown.tsx";
import { milliseconds } from "../parts/outcome.tsx";
import { Code } from "../parts/snippets.tsx";
import { place, refine } from "../router.ts";
import { admin, inferenceKey } from "../session.ts";
import { formatCount, formatCredits, useTexts } from "../texts/texts.ts";

const MOST_IMAGE_BYTES = 5 * 1024 * 1024;
/** The record of a request is written a moment after its end. */
const COST_TRIES = 8;
const COST_PAUSE_MS = 700;

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

/** One asking: each gets a number, so that a pane begins anew. */
interface Asking {
  readonly number: number;
  readonly questions: readonly Question[];
}

function Form({ models }: { models: readonly string[] }) {
  const t = useTexts();
  const { query } = useStore(place);
  const first = models[0] ?? "";
  const [system, setSystem] = useState("");
  const [text, setText] = useState("");
  const [images, setImages] = useState<readonly string[]>([]);
  const [turns, setTurns] = useState<readonly Said[]>([]);
  /** Of the running or last question, by its pane; null: it has not ended. */
  const [answers, setAnswers] = useState<readonly (string | null)[]>([]);
  /** The button that begins or goes on with a conversation goes away: the next question has the focus then. */
  const [focus, setFocus] = useState(0);
  const [webSearch, setWebSearch] = useState(false);
  const [openPages, setOpenPages] = useState(false);
  const [posts, setPosts] = useState(false);
  const [isCode, setIsCode] = useState(false);
  const [asking, setAsking] = useState<Asking | null>(null);
  const [running, setRunning] = useState(0);
  const [stopper, setStopper] = useState(() => new AbortController());
  useEffect(() => () => stopper.abort(), [stopper]);
  const known = (name: string) => models.find((model) => model === query.get(name));
  const dialect = dialects.find((one) => one === query.get("dialect")) ?? "messages";
  const other = known("compare");
  // Outside of Messages pages are opened by the search itself, and Chat knows no posts.
  const question = (model: string, pane: number): Question => ({
    dialect,
    model,
    system,
    // A second model that joined later hears what the first one said.
    earlier: turns.map((turn) => ({ ...turn, answer: turn.answers[pane] ?? turn.answers[0] ?? "" })),
    text,
    images,
    webSearch,
    openPages: dialect === "messages" && openPages,
    posts: dialect !== "chat" && posts,
  });
  const questions = [known("model") ?? first, ...(other === undefined ? [] : [other])].map(question);
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
            value={known("model") ?? first}
            onInput={(model) => refine({ model })}
            choices={models.map((model) => [model, model])}
          />
        </div>
        <Check
          label={t.playground.compare}
          checked={other !== undefined}
          onInput={(checked) => refine({ compare: checked ? (models[1] ?? first) : "" })}
        />
        {other !== undefined && (
          <Choice
            label={t.playground.other}
            value={other}
            onInput={(compare) => refine({ compare })}
            choices={models.map((model) => [model, model])}
          />
        )}
        <TextArea label={t.playground.system} value={system} onInput={setSystem} rows={2} />
        {turns.length > 0 && <Conversation turns={turns} onForget={beginAnew} isRunning={running > 0} />}
        <TextArea label={t.playground.message} value={text} onInput={setText} rows={5} focus={focus} />
        <Images images={images} onChange={setImages} />
        <div class="row">
          <Check label={t.playground.webSearch} checked={webSearch} onInput={setWebSearch} />
          <Check
            label={t.playground.openPages}
            checked={dialect === "messages" ? openPages : webSearch}
            disabled={dialect !== "messages"}
            onInput={setOpenPages}
          />
          <Check
            label={t.playground.posts}
            checked={dialect !== "chat" && posts}
            disabled={dialect === "chat"}
            onInput={setPosts}
          />
        </div>
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
          <Answer
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

/** What was said before, of each pane's model. */
interface Said extends Omit<Turn, "answer"> {
  readonly answers: readonly string[];
}

interface ConversationProps {
  readonly turns: readonly Said[];
  readonly onForget: () => void;
  readonly isRunning: boolean;
}

/** More than three lines of it; megabytes would hold the page. */
const SHOWN_CHARS = 1000;

function Conversation({ turns, onForget, isRunning }: ConversationProps) {
  const t = useTexts();
  return (
    <section class="stack" aria-label={t.playground.earlier}>
      <div class="section-head">
        <h2>{t.playground.earlier}</h2>
        <Button kind="quiet" onClick={onForget} disabled={isRunning}>
          {t.playground.anew}
        </Button>
      </div>
      {turns.map(({ text, answers }, index) => (
        <div key={index} class="step">
          <p class="clipped">
            <b>{text.slice(0, SHOWN_CHARS)}</b>
          </p>
          {answers.map((answer, pane) => (
            <p key={pane} class="clipped">
              {answer.slice(0, SHOWN_CHARS)}
            </p>
          ))}
        </div>
      ))}
    </section>
  );
}

interface ImagesProps {
  readonly images: readonly string[];
  readonly onChange: (images: readonly string[]) => void;
}

function Images({ images, onChange }: ImagesProps) {
  const t = useTexts();
  const id = useId();
  const [isTooLarge, setIsTooLarge] = useState(false);
  const add = async (input: HTMLInputElement) => {
    const files = Array.from(input.files ?? []);
    const small = files.filter(({ size }) => size <= MOST_IMAGE_BYTES);
    setIsTooLarge(small.length < files.length);
    onChange([...images, ...(await Promise.all(small.map(dataUrlOf)))]);
    input.value = "";
  };
  return (
    <div class="field">
      <label for={id}>{t.playground.image}</label>
      <input
        id={id}
        type="file"
        accept="image/png,image/jpeg,image/gif,image/webp"
        multiple
        onChange={(event) => void add(event.currentTarget)}
      />
      {isTooLarge && (
        <p class="hint" role="alert">
          {t.playground.tooLarge}
        </p>
      )}
      {images.length > 0 && (
        <div class="row">
          {images.map((url, index) => (
            <img key={index} src={url} alt={t.playground.attached(index + 1)} height="48" />
          ))}
          <Button kind="quiet" onClick={() => onChange([])}>
            {t.playground.noImages}
          </Button>
        </div>
      )}
    </div>
  );
}

const dataUrlOf = (file: Blob): Promise<string> =>
  new Promise((done, fail) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => done(typeof reader.result === "string" ? reader.result : ""));
    reader.addEventListener("error", () => fail(new Error("the image cannot be read")));
    reader.readAsDataURL(file);
  });

interface AnswerProps {
  readonly question: Question;
  readonly signal: AbortSignal;
  /** Is told what came, all of it or not. */
  readonly onEnd: (text: string) => void;
}

function Answer({ question, signal, onEnd }: AnswerProps) {
  const t = useTexts();
  const [play, setPlay] = useState<Play>(nothingYet);
  const [problem, setProblem] = useState<Error | null>(null);
  const [isRunning, setIsRunning] = useState(true);
  /** Before its end: Stop may also be meant for the answer beside this one. */
  const [wasStopped, setWasStopped] = useState(false);
  const [firstByteMs, setFirstByteMs] = useState<number | null>(null);
  const [credits, setCredits] = useState<string | null>(null);
  // The newest play; what is drawn follows it.
  const newest = useRef<Play>(nothingYet);
  useEffect(() => {
    const began = performance.now();
    let timer = 0;
    const show = (next: Play) => {
      if (newest.current === nothingYet) setFirstByteMs(Math.round(performance.now() - began));
      newest.current = next;
      timer ||= setTimeout(() => {
        timer = 0;
        setPlay(newest.current);
      }, drawingPause(next.text));
    };
    const run = async () => {
      let requestId: string | null = null;
      try {
        const answer = await ask(question, signal);
        requestId = answer.headers.get("request-id");
        await readPlay(answer, show);
      } catch (error) {
        if (!signal.aborted) setProblem(errorOf(error));
      }
      setWasStopped(signal.aborted);
      setIsRunning(false);
      onEnd(newest.current.text);
      // It takes a moment to be known; the next question need not wait for it.
      setCredits(await costOf(requestId));
    };
    void run();
  }, []);
  return (
    <section class="card stack" aria-label={question.model} aria-busy={isRunning}>
      <h2>{question.model}</h2>
      {play.steps.map((step, index) => (
        <p key={index} class="step">
          {step}
        </p>
      ))}
      <Markdown text={play.text} />
      {wasStopped && <p class="notice warn">{t.playground.stopped}</p>}
      {problem !== null && <Problem problem={problem} />}
      {play.error !== null && (
        <p class="notice bad" role="alert">
          {t.playground.broke(play.error)}
        </p>
      )}
      {play.citations.length > 0 && (
        <>
          <h3>{t.playground.citations}</h3>
          <ol class="answer">
            {play.citations.map(({ url, title }) => (
              <li key={url}>
                <SafeLink url={url}>{title}</SafeLink>
              </li>
            ))}
          </ol>
        </>
      )}
      <dl class="facts hint">
        <dt>{t.requests.firstByte}</dt>
        <dd>{milliseconds(firstByteMs, t)}</dd>
        <dt>{t.usage.tokens}</dt>
        <dd>
          {play.inputTokens === null
            ? "–"
            : t.playground.tokens(formatCount(play.inputTokens, t), formatCount(play.outputTokens ?? 0, t))}
        </dd>
        <dt>{t.costs.credits}</dt>
        <dd>{credits === null ? "–" : formatCredits(credits, t)}</dd>
      </dl>
    </section>
  );
}

/** A long answer takes long to draw: it is drawn less often, so that the page stays at hand. Milliseconds. */
const drawingPause = (text: string): number => Math.min(1000, 16 + text.length / 500);

/**
 * A key that is refused is not forgotten here: what was typed and answered would go with it.
 * @throws ApiProblem; AbortError when it was stopped
 */
function ask(question: Question, signal: AbortSignal): Promise<Response> {
  const { path, body } = requestOf(question);
  return send(inferenceKey.value ?? "", path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
}

/** @throws AbortError; TypeError when the connection breaks */
async function readPlay(answer: Response, show: (play: Play) => void): Promise<void> {
  let play = nothingYet;
  let buffered = "";
  const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const piece = await reader?.read();
    if (piece === undefined || piece.done) break;
    const { events, rest } = readEvents(buffered + piece.value);
    buffered = rest;
    for (const event of events) play = advance(play, event);
    show({ ...play });
  }
}

/** What the books say it cost; null when they do not say so soon. */
async function costOf(requestId: string | null): Promise<string | null> {
  if (requestId === null) return null;
  for (let tries = 0; tries < COST_TRIES; tries += 1) {
    await new Promise((done) => setTimeout(done, COST_PAUSE_MS));
    const found = await admin("GET /v1/organization/requests/{id}", { path: { id: requestId } }).catch(
      () => null,
    );
    if (found !== null) return found.credits;
  }
  return null;
}
