/** At which prices a request is held and charged (rules 10.3, 10.4); what they come to: billing/prices/price.test.ts. */
import { expect, test } from "vitest";
import { bodyOf, serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { declaredSearch, routeTo, snapshotOf, toolPolicy, upstreamOf } from "../../test/fakes/inference.ts";
import { text } from "../../test/fakes/upstream/script.ts";
import { usageRow } from "../billing/ledger/usage-row.ts";
import { dialects } from "../dialects/dialect.ts";

const { callTo, fake, serve } = await serveOneUpstream();
const { prices } = routeTo([]);

test.each(dialects)(
  "%s: the prices are those of the moment at which the request was accepted",
  async (dialect) => {
    const call = callTo(dialect, bodyOf(dialect));
    const later = { ...prices, input: "7", output: "7", from: call.acceptedAt };
    const route = routeTo([upstreamOf(fake.url, dialect)], { prices: { ...prices, changes: [later] } });
    for (const [acceptedAt, input] of [
      [call.acceptedAt - 1, "1"],
      [call.acceptedAt, "7"],
    ] as const) {
      fake.next(text("hello"));
      const asked = { ...callTo(dialect, bodyOf(dialect)), acceptedAt, snapshot: snapshotOf([route]) };
      await serve(asked);
      expect(asked.meter.opened.map(({ request }) => request.prices.input)).toEqual([input]);
    }
  },
);

test.each(dialects)("%s: each call of a tool loop is charged by its own input", async (dialect) => {
  const tiers = [{ ...prices, inputOver: 1000, input: "10", output: "10" }];
  const route = routeTo([upstreamOf(fake.url, "messages")], {
    prices: { ...prices, tiers },
    toolPolicy: "p",
  });
  fake.next(
    {
      answer: {
        parts: [{ type: "tool", name: "web_search", input: { query: "gates" } }],
        usage: { input: 900, output: 10 },
      },
    },
    text("They are faster.", { input: 1100, output: 10 }),
  );
  const body = { ...bodyOf(dialect), ...declaredSearch[dialect] };
  const call = { ...callTo(dialect, body), snapshot: snapshotOf([route], ["*"], {}, { p: toolPolicy }) };
  await serve(call);
  const [opened] = call.meter.opened;
  const [settled] = call.meter.settled;
  if (opened === undefined || settled === undefined) throw new Error("nothing was charged");
  expect(settled.tokens).toMatchObject({ input: 2000, output: 20 });
  const { parts } = usageRow(opened.request, settled).cost;
  expect([parts.input, parts.output]).toEqual([900n + 11_000n, 20n + 100n]);
});
