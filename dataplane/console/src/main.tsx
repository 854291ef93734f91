import { render } from "preact";
import { App } from "./app.tsx";
import { chooseTheme, keptTheme } from "./parts/preferences.tsx";
import "./styles.css";
import { chooseLanguage, keptLanguage } from "./texts/texts.ts";

chooseTheme(keptTheme());
const root = document.querySelector("#app");
if (root === null) throw new Error("the page has no place for the console");
chooseLanguage(keptLanguage()).then(
  () => render(<App />, root),
  () => render(<App />, root),
);
