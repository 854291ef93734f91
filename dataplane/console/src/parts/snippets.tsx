/** How to call a model, with this gateway's address. The key stays a variable: snippets are shared. */
import { useState } from "preact/hooks";
import { useTexts } from "../texts/texts.ts";
import { CopyButton } from "./basics.tsx";

const snippets = {
  curl: (base: string, model: string) => `curl ${base}/v1/chat/completions \\
  -H "authorization: Bearer $GAPURA_KEY" \\
  -H "content-type: application/json" \\
  -d '${JSON.stringify({ model, messages: [{ role: "user", content: "Hello!" }] })}'`,
  "OpenAI SDK": (base: string, model: string) => `from openai import OpenAI
import os

client = OpenAI(base_url="${base}/v1", api_key=os.environ["GAPURA_KEY"])
answer = client.responses.create(model=${JSON.stringify(model)}, input="Hello!")
print(answer.output_text)`,
  "Anthropic SDK": (base: string, model: string) => `import anthropic
import os

client = anthropic.Anthropic(base_url="${base}", api_key=os.environ["GAPURA_KEY"])
message = client.messages.create(
    model=${JSON.stringify(model)},
    max_tokens=1024,
    messages=[{"role": "user", "content": "Hello!"}],
)
print(message.content[0].text)`,
  Codex: (base: string, model: string) => `# ~/.codex/config.toml
model = ${JSON.stringify(model)}
model_provider = "gapura"

[model_providers.gapura]
name = "Gapura"
base_url = "${base}/v1"
env_key = "GAPURA_KEY"
wire_api = "responses"`,
  "Claude Code": (base: string, model: string) => `export ANTHROPIC_BASE_URL="${base}"
export ANTHROPIC_API_KEY="$GAPURA_KEY"
claude --model ${model}`,
} as const;
type Client = keyof typeof snippets;

export function Snippets({ model }: { model: string }) {
  const t = useTexts();
  const [client, setClient] = useState<Client>("curl");
  const text = snippets[client](location.origin, model);
  return (
    <div class="stack">
      <div class="tabs" role="group" aria-label={t.models.call}>
        {(Object.keys(snippets) as Client[]).map((name) => (
          <button
            key={name}
            type="button"
            class="button plain"
            aria-pressed={name === client}
            onClick={() => setClient(name)}
          >
            {name}
          </button>
        ))}
      </div>
      <Code text={text} />
    </div>
  );
}

/** @param of names the code among others on the same page */
export function Code({ text, of }: { text: string; of?: string }) {
  const t = useTexts();
  return (
    <div class="code">
      <pre
        tabIndex={0}
        role="region"
        aria-label={of === undefined ? t.models.code : `${t.models.code}: ${of}`}
      >
        <code>{text}</code>
      </pre>
      <CopyButton text={text} />
    </div>
  );
}
