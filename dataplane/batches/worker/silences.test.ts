import { expect, test } from "vitest";
import { Silences } from "./silences.ts";

interface Item {
  readonly organizationId: string;
  readonly model: string;
}

test("an organization whose items ask very many makes its own silences forgotten, not those of others", () => {
  const silences = new Silences<Item>(({ organizationId, model }) => `${organizationId} ${model}`, 100);
  let begun = 0;
  const silent = (item: Item, times: number) => {
    for (let time = 0; time < times; time += 1) {
      begun += 1;
      silences.unanswered(item, new Map([[item, begun]]), begun, 1_000, 0);
    }
  };
  silent({ organizationId: "org_a", model: "away" }, 5);
  silent({ organizationId: "org_b", model: "first" }, 5);
  for (let n = 0; n < 10_000; n += 1) silent({ organizationId: "org_b", model: `model-${n}` }, 1);
  expect([...silences.rooms(new Map(), 1_000).keys()]).toEqual(["org_a away"]);
});
