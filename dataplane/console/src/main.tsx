import { render } from "preact";
import { App } from "./app.tsx";
import { Boundary } from "./parts/boundary.tsx";
import { chooseTheme, keptTheme } from "./parts/preferences.tsx";
import "./styles.css";
import { chooseLanguage, keptLanguage } from "./texts/texts.ts";

chooseTheme(keptTheme());
const root = document.querySelector("#app");
if (root === null) throw new Error("the page has no place for the console");
const draw = () =>
  render(
    <Boundary>
      <App />
    </Boundary>,
    root,
  );
chooseLanguage(keptLanguage()).then(draw, draw);
