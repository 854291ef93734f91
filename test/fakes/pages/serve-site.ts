/** Sites that live for one test. */
import { afterEach } from "vitest";
import { FakeSite, type Page } from "./site.ts";

export type ServeSite = (pages: Readonly<Record<string, Page>>, host?: string) => Promise<FakeSite>;

/** For the top of a test file: it sets the file's hook, which stops the sites that a test started. */
export function servedSites(): ServeSite {
  const sites: FakeSite[] = [];
  afterEach(async () => {
    for (const site of sites.splice(0)) await site.stop();
  });
  return async (pages, host) => {
    const site = await FakeSite.start(pages, host);
    sites.push(site);
    return site;
  };
}
