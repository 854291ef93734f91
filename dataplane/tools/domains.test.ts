import { describe, expect, test } from "vitest";
import { domainAllowed, parseDomainLists, parseDomainRule } from "./domains.ts";
import { computedMs } from "../../test/fakes/computed.ts";

function allowedBy(rule: string, url: string): boolean {
  const parsed = parseDomainLists([rule], undefined);
  if (parsed.kind === "invalid") throw new Error(parsed.message);
  return domainAllowed(new URL(url), parsed.lists);
}

describe("rule 3.11: domain lists match subdomains; host case and a trailing dot do not matter; a path is a prefix", () => {
  test.each([
    ["example.com", "https://example.com/", true],
    ["example.com", "https://docs.example.com/a", true],
    ["example.com", "https://a.b.example.com:8443/a", true],
    ["EXAMPLE.com", "https://Example.COM/", true],
    ["example.com.", "https://example.com/", true],
    ["example.com", "https://example.com./x", true],
    ["docs.example.com", "https://example.com/", false],
    ["example.com", "https://notexample.com/", false],
    ["example.com", "https://example.com.evil.test/", false],
    ["example.com", "https://evil.test/example.com", false],
    ["example.com", "https://evil.test/?example.com", false],
    ["example.com/docs", "https://example.com/docs", true],
    ["example.com/docs", "https://example.com/docs/a/b", true],
    ["example.com/docs", "https://www.example.com/docs?x=1", true],
    ["example.com/docs", "https://example.com/blog/docs", false],
    ["example.com/docs", "https://example.com/Docs", false],
    ["example.com/", "https://example.com/anything", true],
    ["example.com/*/api", "https://example.com/v1/api/list", true],
    ["example.com/*/api", "https://example.com/api", false],
    ["example.com/a*b*c", "https://example.com/aXbYc", true],
    ["example.com/a*b*c", "https://example.com/aXcYb", false],
    ["example.com/*", "https://example.com/", true],
    ["example.com/blog", "https://example.com/%62log/post", true],
    ["example.com/%62log", "https://example.com/blog", true],
    ["example.com/blog", "https://example.com/x/../blog", true],
    ["example.com/über", "https://example.com/%C3%BCber/uns", true],
    ["example.com/%c3%bcber", "https://example.com/über", true],
    ["bücher.example", "https://xn--bcher-kva.example/", true],
    ["xn--bcher-kva.example", "https://shop.bücher.example/", true],
    ["example.com/x/../blog", "https://example.com/blog", true],
    ["example.com/%2e/blog", "https://example.com/blog/post", true],
    ["example.com//blog", "https://example.com//blog", true],
    ["example.com//blog", "https://example.com/", false],
    ["com", "https://example.com/", true],
    ["93.184.216.34", "http://93.184.216.34/", true],
  ])("%s allows %s: %s", (rule, url, expected) => {
    expect(allowedBy(rule, url)).toBe(expected);
  });

  test("a blocked list refuses what it matches and nothing else", () => {
    const parsed = parseDomainLists(null, ["evil.example", "example.com/private"]);
    if (parsed.kind === "invalid") throw new Error(parsed.message);
    const judge = (url: string) => domainAllowed(new URL(url), parsed.lists);
    expect(judge("https://www.evil.example/")).toBe(false);
    expect(judge("https://EVIL.example./")).toBe(false);
    expect(judge("https://example.com/private/x")).toBe(false);
    expect(judge("https://example.com/%70rivate")).toBe(false);
    expect(judge("https://example.com/public")).toBe(true);
  });

  test("a star between many pieces is matched in linear time", () => {
    const rule = `example.com/${"*a".repeat(1000)}`;
    const started = computedMs();
    expect(allowedBy(rule, `https://example.com/${"a".repeat(900)}b`)).toBe(false);
    expect(computedMs() - started).toBeLessThan(1_000);
  });
});

test("rule 7.3: judging a URL by a list takes a millisecond, whatever both are made of", () => {
  const parsed = parseDomainLists(
    null,
    Array.from({ length: 1_000 }, (_, index) => `example.com/*a${index}`),
  );
  if (parsed.kind === "invalid") throw new Error(parsed.message);
  const url = new URL(`https://example.com/${"%41".repeat(1_300)}`);
  const started = computedMs();
  for (let hop = 0; hop < 10; hop += 1) expect(domainAllowed(url, parsed.lists)).toBe(true);
  expect(computedMs() - started).toBeLessThan(100);
});

describe("domain lists of declarations (service.md, Declarations in Messages)", () => {
  test.each([
    ["https://example.com", "a domain must be given without a scheme"],
    ["//example.com", "a domain must be given without a scheme"],
    ["*.example.com", "* is allowed only in the path"],
    ["exam*ple.com/x", "* is allowed only in the path"],
    ["example.com:8080", "a domain must be given without a port"],
    ["user@example.com", "a domain may hold only a host and a path"],
    ["example.com?x", "a domain may hold only a host and a path"],
    ["example .com", "a domain may hold only a host and a path"],
    ["", "a domain must be a non-empty string"],
    [7, "a domain must be a non-empty string"],
    ["/path", "not a domain"],
    [".example.com", "not a domain"],
    ["example..com", "not a domain"],
    ["example.com..", "not a domain"],
    ["exa%mple.com", "not a domain"],
  ])("%j is refused", (entry, reason) => {
    expect(parseDomainRule(entry)).toBe(reason);
  });

  test("both lists together are refused; null and empty lists are none", () => {
    expect(parseDomainLists(["a.example"], ["b.example"])).toMatchObject({
      kind: "invalid",
      param: "blocked_domains",
    });
    expect(parseDomainLists(null, undefined)).toEqual({
      kind: "lists",
      lists: { allowed: null, blocked: [] },
    });
    expect(parseDomainLists([], ["b.example"])).toMatchObject({ lists: { allowed: null } });
  });

  test("the faulty entry is named", () => {
    expect(parseDomainLists(["a.example", "http://b.example"], null)).toMatchObject({
      param: "allowed_domains[1]",
    });
    expect(parseDomainLists(null, "a.example")).toMatchObject({ kind: "invalid", param: "blocked_domains" });
    expect(parseDomainLists(["a.example", "b.example/**", `c.example/${"*".repeat(999)}`], null)).toEqual({
      kind: "invalid",
      param: "allowed_domains[2]",
      message: "allowed_domains may hold at most 1000 * in all",
    });
    expect(parseDomainLists(Array(101).fill("a.example"), null, 100)).toMatchObject({
      kind: "invalid",
      param: "allowed_domains",
    });
  });
});
