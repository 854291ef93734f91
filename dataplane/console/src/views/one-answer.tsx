/** The answer to one question as it streams: its text, its steps and sources, its speed and its cost. */
import { useEffect, useRef, useState } from "preact/hooks";
import { send } from "../api/client.ts";
import { errorOf } from "../lib/error-of.ts";
import { advance, nothingYet, readEvents, requestOf, type Play, type Question } from "../lib/playground.ts";
import { Problem } from "../parts/basics.tsx";
import { Markdown, SafeLink } from "../parts/markdown.tsx";
import { milliseconds } from "../parts/outcome.tsx";
import { admin, inferenceKey } from "../session.ts";
import { formatCount, formatCredits, useTexts } from "../texts/texts.ts";

/** Tries to read the cost: the record of a request is written a moment after its end. */
const COST_TRIES = 8;
const COST_PAUSE_MS = 700;

interface AnswerProps {
  readonly question: Question;
  readonly signal: AbortSignal;
  /** Called with the text that came, complete or not. */
  readonly onEnd: (text: string) => void;
}

export function OneAnswer({ question, signal, onEnd }: AnswerProps) {
  const t = useTexts();
  const [play, setPlay] = useState<Play>(nothingYet);
  const [problem, setProblem] = useState<Error | null>(null);
  const [isRunning, setIsRunning] = useState(true);
  /** Whether it was stopped before its end: Stop may have come after it, while another pane's answer was running. */
  const [wasStopped, setWasStopped] = useState(false);
  const [firstByteMs, setFirstByteMs] = useState<number | null>(null);
  const [credits, setCredits] = useState<string | null>(null);
  // The newest play; the drawn one follows it.
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
      // The cost is known a moment later; the next question need not wait for it.
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

/** Milliseconds between two drawings: a long answer takes long to draw, so it is drawn less often and the page stays responsive. */
const drawingPause = (text: string): number => Math.min(1000, 16 + text.length / 500);

/**
 * Sends the question. A key that is refused is not forgotten here, as the question and the answers would be lost with it.
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

/** Reads the cost from the request's record; null when there is none in time. */
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
