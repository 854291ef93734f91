/** The parts of the playground's next question: the conversation before it, pictures and tools. */
import { useId, useState } from "preact/hooks";
import type { PlayDialect, Question, Turn } from "../lib/playground.ts";
import { Button, Check } from "../parts/basics.tsx";
import { useTexts } from "../texts/texts.ts";

const MOST_IMAGE_BYTES = 5 * 1024 * 1024;

/** An earlier turn, with the answer of each pane's model. */
export interface Said extends Omit<Turn, "answer"> {
  readonly answers: readonly string[];
}

interface ConversationProps {
  readonly turns: readonly Said[];
  readonly onForget: () => void;
  readonly isRunning: boolean;
}

/** Characters of a text that are shown: more than three lines, as megabytes would block the page. */
const SHOWN_CHARS = 1000;

export function Conversation({ turns, onForget, isRunning }: ConversationProps) {
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

export function Images({ images, onChange }: ImagesProps) {
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

type ChosenTools = Pick<Question, "webSearch" | "openPages" | "posts">;
export const noTools: ChosenTools = { webSearch: false, openPages: false, posts: false };

/** Returns the tools that a dialect offers: outside of Messages the search itself opens pages, and Chat cannot search posts. */
export const toolsOf = (dialect: PlayDialect, { webSearch, openPages, posts }: ChosenTools): ChosenTools => ({
  webSearch,
  openPages: dialect === "messages" && openPages,
  posts: dialect !== "chat" && posts,
});

interface ToolsProps {
  readonly tools: ChosenTools;
  readonly dialect: PlayDialect;
  readonly onChange: (tools: ChosenTools) => void;
}

export function Tools({ tools, dialect, onChange }: ToolsProps) {
  const t = useTexts();
  const { webSearch, openPages, posts } = toolsOf(dialect, tools);
  return (
    <div class="row">
      <Check
        label={t.playground.webSearch}
        checked={webSearch}
        onInput={(checked) => onChange({ ...tools, webSearch: checked })}
      />
      <Check
        label={t.playground.openPages}
        checked={dialect === "messages" ? openPages : webSearch}
        disabled={dialect !== "messages"}
        onInput={(checked) => onChange({ ...tools, openPages: checked })}
      />
      <Check
        label={t.playground.posts}
        checked={posts}
        disabled={dialect === "chat"}
        onInput={(checked) => onChange({ ...tools, posts: checked })}
      />
    </div>
  );
}
