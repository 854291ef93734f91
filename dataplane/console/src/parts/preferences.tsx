/** Language and theme: kept in the browser, as neither is a secret. */
import { browserStorage } from "../lib/storage.ts";
import { Store, useStore } from "../lib/store.ts";
import { chooseLanguage, language, languages, useTexts } from "../texts/texts.ts";
import { Choice } from "./choice.tsx";

const KEPT_THEME = "gapura-theme";
const theme = new Store("system");

export function chooseTheme(name: string): void {
  const known = name === "light" || name === "dark" ? name : "system";
  browserStorage?.setItem(KEPT_THEME, known);
  document.documentElement.dataset["theme"] = known;
  theme.set(known);
}

export const keptTheme = (): string => browserStorage?.getItem(KEPT_THEME) ?? "system";

export function Preferences() {
  const t = useTexts();
  const { system, light, dark } = t.shell.themes;
  return (
    <div class="preferences">
      <Choice
        label={t.shell.theme}
        value={useStore(theme)}
        onInput={chooseTheme}
        choices={[
          ["system", system],
          ["light", light],
          ["dark", dark],
        ]}
      />
      <Choice
        label={t.shell.language}
        value={useStore(language)}
        onInput={(name) => void chooseLanguage(name)}
        choices={languages}
      />
    </div>
  );
}
