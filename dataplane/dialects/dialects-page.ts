/** The page docs/dialects.md, made from the field table. */
import { type Dialect, dialectPath, dialects } from "./dialect.ts";
import { priceEffect } from "./price-effects.ts";
import type { FieldHandling, FieldRule } from "./field-rule.ts";
import { fields } from "./request-fields.ts";

const titles: Record<Dialect, string> = {
  messages: "Messages",
  chat: "Chat Completions",
  responses: "Responses",
};

function fateText(handling: FieldHandling, field: FieldRule): string {
  const text = typeof handling === "string" ? handling : `as \`${handling.copiedTo}\``;
  const where = [
    ...(field.droppedWithServerTools === true ? ["with a server tool"] : []),
    ...(field.droppedWithSummary === true ? ["for a summary"] : []),
  ];
  return where.length > 0 && handling !== "dropped" ? `${text}; dropped ${where.join(" or ")}` : text;
}

const codes = (names: readonly string[]): string => names.map((name) => `\`${name}\``).join(", ");

function noteText(field: FieldRule): string {
  const { note, neutral, listIsHistory, usedInRole, keptInRole, served, holds = [] } = field;
  const held = holds.length === 0 ? [] : [`with ${codes([...new Set(holds)])}`];
  const used = usedInRole === undefined ? [] : [`mapped where \`role\` is \`${usedInRole}\``];
  const kept = keptInRole === undefined ? [] : [`dropped where \`role\` is not \`${keptInRole}\``];
  const others = served === undefined ? [] : [`dropped for any value but ${codes(served)}`];
  const crossing = dialects.flatMap((target) => {
    const values = field.crossing?.[target];
    return values === undefined
      ? []
      : [`toward ${titles[target]} dropped for any value but ${codes(values)}`];
  });
  const values = neutral === "any" ? "it" : codes((neutral ?? []).map((value) => JSON.stringify(value)));
  const fine = [
    ...(values === "" ? [] : [values]),
    ...(listIsHistory === true ? ["a list of an earlier answer"] : []),
  ];
  const isFine = fine.length === 0 ? [] : [`${fine.join(", ")} is never a loss`];
  return [...held, ...used, ...kept, ...others, ...crossing, ...(note === undefined ? [] : [note]), ...isFine]
    .join("; ")
    .replaceAll("|", "\\|");
}

const effects = { none: "", tier: "tier", own: "own", account: "account" } as const;

function section(client: Dialect): string {
  const rows = fields[client].map((field) => {
    const fates = dialects.map((upstream) => fateText(field.to[upstream], field));
    const price = effects[priceEffect(client, field.name) ?? "none"];
    return `| \`${field.name}\` | ${fates.join(" | ")} | ${price} | ${noteText(field)} |`;
  });
  return [
    `## ${titles[client]} clients`,
    "",
    `\`POST ${dialectPath[client]}\``,
    "",
    `| Field | to ${titles.messages} | to ${titles.chat} | to ${titles.responses} | Price | |`,
    "|---|---|---|---|---|---|",
    ...rows,
  ].join("\n");
}

const introduction = `# What becomes of a request field

A client of any of the three dialects reaches any model. When the model's upstream speaks the client's own dialect
and no server tool is used, the request is **relayed**: its bytes pass through and this page does not apply, save for
fields that are refused. Otherwise it is **converted**, and this page says what becomes of each field:

- **mapped**: the upstream's dialect has a counterpart, or Gapura uses the field itself;
- **as \`field\`**: passed on unchanged under that name;
- **dropped**: there is no counterpart. The field's name stands in the answer's header \`x-gapura-dropped\`. A request
  with the header \`x-gapura-strict: true\` is answered with 400 instead, before anything is sent upstream;
- **refused**: 400, because leaving the field out would change the answer.

Null counts as absent. Fields that are not listed, nested ones too, are dropped between dialects and named in the
header; a Messages upstream gets those of Messages clients. What stands after *with* is read inside of the field. Two more drops depend on the model: \`temperature\`, \`top_p\` and \`top_k\`
where its route says \`samplingParameters: false\`, thinking and effort where it says \`thinking: false\`.

Reasoning of earlier turns comes back as the client got it: signatures, \`encrypted_content\` and, with Responses,
items named by \`item_reference\` or sent without their content. Output items are kept for an hour for this, unless
the request says \`store: false\` or stands in a batch, whose results have the content instead. What an upstream of another account refuses of it is left out, and it is asked once
more.

On every path, relayed ones too, clients hold these as \`gapura_r1_…\`: sealed to their organization, because an
upstream's account, which several may share, opens them for whoever brings them. They are opened on the way back,
also when the conversation goes on in another way (relayed, converted, with server tools). What another organization
was given, what is damaged and what was never sealed is left out with its block or item, never refused. Only an
upstream that is \`dedicatedTo\` one organization gives and takes them as the provider wrote them.

## What changes a price

The column *Price* says what a field does to what the provider charges, on every path:

- **tier**: another price for the same tokens. It goes upstream only where \`serviceTiers\` of the model's PriceTable name the value;
  else it is left out, named in \`x-gapura-dropped\` and refused under strict, but for the values that ask for the standard. Of
  \`reasoning\` that is \`mode\` alone. Where a request leaves the tier open (\`auto\`, or no \`service_tier\`), the upstream is told its
  standard one (\`standard_only\`, \`default\`), which is neither a drop nor refused, unless the table names a tier that its account may
  choose: \`priority\` of Messages, any but \`fast\`, \`us\` and \`pro\` of the others.
- **own**: tokens with prices of their own; audio goes where the table has \`audioInput\` and \`audioOutput\`, the output \`image\` where
  it has \`imageOutput\`, toward upstreams of the client's own dialect, without server tools; both are refused with 400 elsewhere, as
  are outputs of other kinds.
- **account**: names an account of the provider, or what it shall serve and be paid for; never goes, in whichever dialect. Nor does a
  known field in other letters (\`Model\`, \`serviceTier\`), which some servers would take for it.

The beta \`context-1m-…\` goes where the table has \`tiers\`, \`fast-mode-…\` where it names \`fast\`; a beta that stays here is named
\`anthropic-beta:NAME\`, as is one that an upstream refuses, which is asked again without it (under strict, or where \`speed\` asks for
its tier, the client gets the refusal). What is charged: [billing.md](billing.md).

## What an upstream refuses

Not every server of a dialect knows all of its fields. One that refuses one of these is asked again without it, which costs nothing, and
for ten minutes is sent it no more:

- \`service_tier\` that Gapura added, and \`stream_options\` of Chat, unless the client sent it.
- In converted requests \`user\`; \`stop\`, whose sequences are applied here then; \`max_completion_tokens\`, which goes as \`max_tokens\`
  then.
- \`metadata\` of Chat, which some take only with what they store; a drop then.
- An effort that a model does not know, in converted requests and not under strict: \`none\` and \`minimal\` go as \`low\`, \`xhigh\` and
  \`max\` as \`high\`.
- The summary of reasoning that Messages clients with thinking get of a Responses upstream, which some accounts are not given; a drop
  for those that said \`display: "summarized"\`.
- Thinking where a tool is forced, which some Messages models refuse: for clients of the other dialects it is off then, not under
  strict.
- \`temperature\` beside \`top_p\`, which newer Messages models refuse: from clients of the other dialects one of them goes, the other
  being 1 or a drop of \`top_p\`.
- Schemas of structured output that are not closed, from clients of the other dialects: objects that list their properties get no
  others; a schema with an object of several parts (\`allOf\`) stays as it is.
- Keywords of such schemas, and of those of strict tools (bounds, patterns, \`oneOf\`): the model gets them told in descriptions, \`oneOf\`
  as \`anyOf\`, and each is a drop. A schema without a keyword that was refused stays as it is.

This page is generated (\`npm run generate\`) from \`request-fields.ts\` of each dialect (\`dataplane/dialects/\`).`;

/** The whole page, as Markdown. */
export const dialectsPage = (): string => `${[introduction, ...dialects.map(section)].join("\n\n")}\n`;
