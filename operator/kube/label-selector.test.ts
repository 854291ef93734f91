import { expect, test } from "vitest";
import { LABEL_MAX_LENGTH } from "../api/labels.ts";
import { labelSelector } from "./label-selector.ts";

const isTaken = (text: string) => labelSelector().safeParse(text).success;
const longest = "a".repeat(LABEL_MAX_LENGTH);

test.each([
  "app=gapura",
  "app == gapura, tier != Web_1.2",
  "app.kubernetes.io/name=gapura,app.kubernetes.io/instance=gapura,app.kubernetes.io/component=data-plane",
  "app=",
  "app,!canary",
  "tier in (a, b),app notin (c),x",
  `example.com/${longest}=${longest}`,
])("%j selects", (text) => {
  expect(isTaken(text)).toBe(true);
});

test.each([
  "",
  " ",
  "=",
  "app=gapura,",
  "app=gapura;tier=a",
  "app=data plane",
  "app=-x",
  "-app=x",
  "app===x",
  "tier in a",
  "tier in (a",
  "tier in (a))",
  "tier in ()(",
  "/app=x",
  "Example.com/app=x",
  `app=${longest}a`,
  `${longest}a=x`,
  `app=${"x,a=".repeat(2_000)}`,
])("%j does not", (text) => {
  expect(isTaken(text)).toBe(false);
});
