/**
 * A model's Markdown, drawn from its tokens: no markup is ever made, so none can be injected. HTML in it is text,
 * a link opens only http and https (rule 11.4), an image is shown as its alternative text.
 */
import type { Token, Tokens } from "marked";
import type { ComponentChildren } from "preact";
import { readMarkdown } from "../lib/markdown.ts";

/** Longer texts are shown as plain text: parsing them again with every piece would block the page. */
const MOST_CHARACTERS = 100_000;
/** Cuts such a text into blocks, so that a browser lays out only the visible ones. */
const BLOCK = /[^]{1,8000}(?:\n|$)|[^]{1,8000}(?:\s|$)|[^]{1,8000}/gu;

export function Markdown({ text }: { text: string }) {
  if (text.length > MOST_CHARACTERS)
    return (
      <div class="answer plain-text" dir="auto">
        {text.match(BLOCK)?.map((block, index) => (
          <div key={index} class="block">
            {block}
          </div>
        ))}
      </div>
    );
  return (
    <div class="answer" dir="auto">
      {drawAll(readMarkdown(text))}
    </div>
  );
}

const drawAll = (tokens: readonly Token[] | undefined): ComponentChildren[] =>
  (tokens ?? []).map((token, index) => draw(token, index));

function draw(token: Token, key: number): ComponentChildren {
  const inner = "tokens" in token && token.tokens !== undefined ? drawAll(token.tokens) : null;
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading":
      return <h3 key={key}>{inner}</h3>;
    case "paragraph":
      return <p key={key}>{inner}</p>;
    case "blockquote":
      return <blockquote key={key}>{inner}</blockquote>;
    case "code":
      return (
        <pre key={key} tabIndex={0}>
          <code>{(token as Tokens.Code).text}</code>
        </pre>
      );
    case "list":
      return drawList(token as Tokens.List, key);
    case "table":
      return drawTable(token as Tokens.Table, key);
    case "hr":
      return <hr key={key} />;
    case "br":
      return <br key={key} />;
    case "strong":
      return <strong key={key}>{inner}</strong>;
    case "em":
      return <em key={key}>{inner}</em>;
    case "del":
      return <del key={key}>{inner}</del>;
    case "codespan":
      return <code key={key}>{(token as Tokens.Codespan).text}</code>;
    case "link":
      return (
        <SafeLink key={key} url={(token as Tokens.Link).href}>
          {inner}
        </SafeLink>
      );
    case "image":
      return <span key={key}>{(token as Tokens.Image).text}</span>;
    case "text":
    case "escape":
      return <span key={key}>{inner ?? (token as Tokens.Text).text}</span>;
    default:
      return <span key={key}>{token.raw}</span>;
  }
}

function drawList({ ordered, items }: Tokens.List, key: number): ComponentChildren {
  const entries = items.map((item, index) => <li key={index}>{drawAll(item.tokens)}</li>);
  return ordered ? <ol key={key}>{entries}</ol> : <ul key={key}>{entries}</ul>;
}

function drawTable({ header, rows }: Tokens.Table, key: number): ComponentChildren {
  const cells = [header, ...rows].map((row) => row.map((cell) => drawAll(cell.tokens)));
  return (
    <div key={key} class="table-frame keeps" tabIndex={0}>
      {cells.map((row, index) => (
        <div key={index} class="row">
          {row.map((cell, position) => (
            <span key={position}>{cell}</span>
          ))}
        </div>
      ))}
    </div>
  );
}

export function SafeLink({ url, children }: { url: string; children: ComponentChildren }) {
  const parsed = URL.parse(url);
  if (parsed === null || !/^https?:$/.test(parsed.protocol)) return <span>{children}</span>;
  return (
    <a href={parsed.href} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  );
}
