import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { leastOf, LoopTurns } from "../../../test/fakes/loop-turns.ts";
import { MAX_ROBOTS_BYTES, parseRobots, robotsAllow } from "./robots.ts";

const allows = async (text: string, path: string) =>
  robotsAllow(await parseRobots(text, "svcfetch"), new URL(path, "https://example.com"));

const group = (agent: string, ...rules: string[]) => `User-agent: ${agent}\n${rules.join("\n")}\n`;

describe("rule 3.14: robots.txt per RFC 9309", () => {
  test.each<[string, string, string, boolean]>([
    ["no file content allows", "", "/a", true],
    ["a rule is a prefix", group("*", "Disallow: /a"), "/abc", false],
    ["other paths are free", group("*", "Disallow: /a"), "/b", true],
    ["an empty disallow allows", group("*", "Disallow:"), "/a", true],
    ["everything", group("*", "Disallow: /"), "/", false],
    ["the longest match wins", group("*", "Disallow: /a", "Allow: /a/b"), "/a/b/c", true],
    ["whatever the order", group("*", "Allow: /a/b", "Disallow: /a"), "/a/b/c", true],
    ["allow wins a tie", group("*", "Disallow: /a", "Allow: /a"), "/a", true],
    ["own group replaces *", group("*", "Disallow: /") + group("SvcFetch", "Disallow: /x"), "/y", true],
    ["own group's rules hold", group("*", "Allow: /") + group("SvcFetch", "Disallow: /x"), "/x", false],
    ["the own group is named in any case", group("SVCFETCH", "Disallow: /x"), "/x", false],
    ["and with a version", group("SvcFetch/1.0", "Disallow: /x"), "/x", false],
    ["a longer name is another crawler", group("SvcFetchImages", "Disallow: /x"), "/x", true],
    ["a shorter name too", group("Svc", "Disallow: /x"), "/x", true],
    [
      "an own group without rules frees us",
      group("*", "Disallow: /") + group("SvcFetch", "Disallow:"),
      "/x",
      true,
    ],
    [
      "an own group of nothing at all as well",
      `${group("*", "Disallow: /")}User-agent: SvcFetch\n`,
      "/x",
      true,
    ],
    [
      "groups of one name are joined",
      group("SvcFetch", "Disallow: /x") + group("a") + group("SvcFetch", "Disallow: /y"),
      "/x",
      false,
    ],
    ["several names share a group", `User-agent: a\nUser-agent: SvcFetch\nDisallow: /x\n`, "/x", false],
    [
      "an unrelated line does not end a group's names",
      `User-agent: SvcFetch\nCrawl-delay: 1\nUser-agent: b\nDisallow: /x\n`,
      "/x",
      false,
    ],
    ["a star stands for anything", group("*", "Disallow: /*/private"), "/a/b/private/c", false],
    ["a dollar ends the path", group("*", "Disallow: /*.pdf$"), "/a.pdf", false],
    ["so a longer one is free", group("*", "Disallow: /*.pdf$"), "/a.pdf?x", true],
    ["the last piece is anchored", group("*", "Disallow: /a*b$"), "/a-b-b", false],
    ["a dollar without a star", group("*", "Disallow: /a$"), "/a", false],
    ["and its longer path", group("*", "Disallow: /a$"), "/ab", true],
    ["pieces do not overlap", group("*", "Disallow: /ab*ba$"), "/aba", true],
    ["the query counts", group("*", "Disallow: /*?session="), "/a?session=1", false],
    ["paths are case-sensitive", group("*", "Disallow: /A"), "/a", true],
    ["keys are not", "USER-AGENT: *\nDISALLOW: /a", "/a", false],
    ["comments are cut", "User-agent: * # all\nDisallow: /a # secret\n", "/a", false],
    ["CR, CRLF and a BOM", "\ufeffUser-agent: *\r\nDisallow: /a\rDisallow: /b\r\n", "/b", false],
    ["blank lines do not end a group", "User-agent: *\n\nDisallow: /a\n", "/a", false],
    ["escapes are compared in one spelling", group("*", "Disallow: /%61b%C3%BC"), "/abü", false],
    ["unescaped beyond ASCII as well", group("*", "Disallow: /ü"), "/%c3%bc", false],
    ["robots.txt itself is free", group("*", "Disallow: /"), "/robots.txt", true],
    ["rules before any group are nobody's", "Disallow: /\nUser-agent: x\nDisallow: /", "/a", true],
    ["HTML instead of rules allows", "<html><body>404: not found</body></html>", "/a", true],
  ])("%s", async (_, text, path, expected) => {
    expect(await allows(text, path)).toBe(expected);
  });

  test("a hostile file of the largest size costs milliseconds", async () => {
    const agents =
      "User-agent: a\n".repeat(18_000) + "User-agent: *\n" + "Disallow: /*a*a*a*b\n".repeat(12_000);
    const started = performance.now();
    expect(await allows(agents, `/${"a".repeat(2_000)}`)).toBe(true);
    expect(performance.now() - started).toBeLessThan(2_000);
  });

  test.each([
    ["short rules", (index: number) => `Allow: /${index}\n`],
    ["letters beyond ASCII", () => "Disallow: /üüüüü\n"],
    ["escapes", () => `Disallow: /${"%61".repeat(300)}\n`],
    ["one rule", (index: number) => (index === 0 ? "Disallow: /" : "%C3%BC".repeat(1_000))],
  ])("rule 7.3: one of %s holds up nobody", async (_, line) => {
    let text = "User-agent: *\n";
    for (let index = 0; text.length < MAX_ROBOTS_BYTES; index += 1) text += line(index);
    const longest = await leastOf(25, async () => {
      const turns = new LoopTurns();
      await parseRobots(text, "svcfetch");
      await sleep(10);
      return turns.stop();
    });
    expect(longest).toBeLessThan(25);
  });

  /** A file of nothing but rules like this one, and a path of so many of one letter. */
  const many = (rule: string) =>
    parseRobots(
      `User-agent: *\n${`${rule}\n`.repeat(Math.floor(MAX_ROBOTS_BYTES / (rule.length + 1)))}`,
      "svcfetch",
    );
  const url = (length: number) => new URL(`https://example.com/${"a".repeat(length)}`);

  test("rule 7.3: a file of rules that are looked for in all of a long path holds up nobody", async () => {
    const robots = await many("Disallow:*ab");
    const longest = await leastOf(25, async () => {
      const turns = new LoopTurns();
      await robotsAllow(robots, url(4_000));
      await sleep(10);
      return turns.stop();
    });
    expect(longest).toBeLessThan(25);
  });

  test("and keeps us out where that would take long; not from a path as short as a model may ask for", async () => {
    const robots = await many("Disallow:*ab");
    expect(await robotsAllow(robots, url(4_000))).toBe(false);
    expect(await robotsAllow(robots, url(250))).toBe(true);
  });
});
