import { expect, test } from "vitest";
import { ownUrl } from "./own-url.ts";

test("all addresses of both families are called at one that every client knows; a given one stays", () => {
  expect(ownUrl("http://[::]:8080")).toBe("http://127.0.0.1:8080");
  for (const address of ["http://127.0.0.1:8080", "http://[fd00::7]:8080", "http://[::1]:8080"])
    expect(ownUrl(address)).toBe(address);
});
