import { ofKind, times } from "./row.ts";

const price = { model: "m", input: "3", output: "15" };

export const priceRows = ofKind("PriceTable", [
  { title: "a unit alone", spec: { unit: "Credit" }, verdict: "good" },
  {
    title: "200 models",
    spec: {
      unit: "USD",
      models: times(200, (index) => ({ ...price, model: `m-${index}`, cacheRead: "0.000001" })),
    },
    verdict: "good",
  },
  {
    title: "a price of nothing",
    spec: { unit: "USD", creditsPerUSD: "0.5", models: [{ ...price, input: "0" }] },
    verdict: "good",
  },
  {
    title: "no unit",
    spec: { models: [price] },
    verdict: "refused",
    path: "spec.unit",
    says: /Required value/,
  },
  {
    title: "a negative price",
    spec: { unit: "USD", models: [{ ...price, input: "-1" }] },
    verdict: "refused",
    path: "spec.models[0].input",
  },
  {
    title: "a price as number",
    spec: { unit: "USD", models: [{ ...price, input: 3 }] },
    verdict: "refused",
    path: "spec.models[0].input",
  },
  {
    title: "a price in words",
    spec: { unit: "USD", models: [{ ...price, input: "1e3" }] },
    verdict: "refused",
    path: "spec.models[0].input",
  },
  {
    title: "a negative tool price",
    spec: { unit: "USD", tools: { webSearch: "-1" } },
    verdict: "refused",
    path: "spec.tools.webSearch",
  },
  {
    title: "no output price",
    spec: { unit: "USD", models: [{ model: "m", input: "1" }] },
    verdict: "refused",
    path: "spec.models[0].output",
    says: /Required value/,
  },
  {
    title: "one model twice",
    spec: { unit: "USD", models: [price, price] },
    verdict: "refused",
    path: "spec.models[1].model",
    says: /Duplicate value/,
  },
  {
    title: "creditsPerUSD with unit Credit",
    spec: { unit: "Credit", creditsPerUSD: "32" },
    verdict: "refused",
    path: "spec.creditsPerUSD",
    says: /only with unit USD/,
  },
  {
    title: "creditsPerUSD of nothing",
    spec: { unit: "USD", creditsPerUSD: "0.00" },
    verdict: "refused",
    path: "spec.creditsPerUSD",
    says: /above 0/,
  },
  {
    title: "every kind of price",
    spec: {
      unit: "USD",
      models: [
        {
          ...price,
          audioInput: "40",
          audioOutput: "80",
          imageOutput: "30",
          tiers: [{ inputOver: 200_000, input: "6" }, { inputOver: 500_000 }],
          serviceTiers: [
            { name: "priority", multiplier: "2" },
            { name: "flex", input: "1.5", output: "7.5", tiers: [{ inputOver: 200_000, input: "3" }] },
          ],
          changes: [
            { from: "2027-01-01T00:00:00Z", input: "2", output: "9", tiers: [{ inputOver: 1 }] },
            { from: "2027-01-01T00:00:00.000001+00:00", input: "2", output: "8" },
          ],
        },
      ],
    },
    verdict: "good",
  },
  {
    title: "the most tiers and changes that a table may hold",
    spec: {
      unit: "USD",
      models: times(20, (index) => ({
        ...price,
        model: `m-${index}`,
        tiers: times(8, (tier) => ({ inputOver: (tier + 1) * 1000 })),
        changes: times(16, (day) => ({
          from: `2027-01-${String(day + 1).padStart(2, "0")}T00:00:00Z`,
          input: "1",
          output: "2",
          tiers: times(8, (tier) => ({ inputOver: (tier + 1) * 1000 })),
        })),
      })),
    },
    verdict: "good",
  },
  {
    title: "the most tiers of service, each with the most tiers",
    spec: {
      unit: "USD",
      models: times(200, (index) => ({
        ...price,
        model: `m-${index}`,
        serviceTiers: times(8, (at) => ({
          name: `tier-${at}`,
          input: "1",
          tiers: times(4, (tier) => ({ inputOver: (tier + 1) * 1000 })),
        })),
      })),
    },
    verdict: "good",
  },
  ...(
    [
      [
        "a tier of service by both ways",
        { name: "a", multiplier: "2", input: "1" },
        "",
        /either a multiplier/,
      ],
      ["a tier of service by none", { name: "a" }, "", /either a multiplier/],
      ["a multiplier of nothing", { name: "a", multiplier: "0.0" }, ".multiplier", /above 0/],
      ["the standard as a tier of service", { name: "default", multiplier: "2" }, ".name", /standard tier/],
      [
        "a tier of service that nobody can ask for",
        { name: "Fast", multiplier: "2" },
        ".name",
        /lower-case|should match/,
      ],
      [
        "bounds of a tier of service that fall",
        { name: "a", input: "1", tiers: [{ inputOver: 2 }, { inputOver: 1 }] },
        ".tiers[1].inputOver",
        /must rise/,
      ],
    ] as const
  ).map(([title, tier, path, says]) => ({
    title,
    spec: { unit: "USD", models: [{ ...price, serviceTiers: [tier] }] },
    verdict: "refused" as const,
    path: `spec.models[0].serviceTiers[0]${path}`,
    says,
  })),
  {
    title: "two tiers of service of one name",
    spec: {
      unit: "USD",
      models: [{ ...price, serviceTiers: times(2, () => ({ name: "a", multiplier: "2" })) }],
    },
    verdict: "refused",
    path: "spec.models[0].serviceTiers[1].name",
    says: /Duplicate value/,
  },
  {
    title: "bounds of tiers that fall",
    spec: { unit: "USD", models: [{ ...price, tiers: [{ inputOver: 2 }, { inputOver: 1 }] }] },
    verdict: "refused",
    path: "spec.models[0].tiers[1].inputOver",
    says: /must rise/,
  },
  {
    title: "two tiers of one bound",
    spec: { unit: "USD", models: [{ ...price, tiers: [{ inputOver: 2 }, { inputOver: 2 }] }] },
    verdict: "refused",
    path: "spec.models[0].tiers[1].inputOver",
    says: /Duplicate value/,
  },
  {
    title: "a tier above nothing",
    spec: { unit: "USD", models: [{ ...price, tiers: [{ inputOver: 0 }] }] },
    verdict: "refused",
    path: "spec.models[0].tiers[0].inputOver",
  },
  ...(
    [
      ["changes out of order", ["2027-02-01T00:00:00Z", "2027-01-01T00:00:00Z"]],
      ["two changes at one moment, said differently", ["2027-01-01T00:00:00Z", "2027-01-01T07:00:00+07:00"]],
    ] as const
  ).map(([title, moments]) => ({
    title,
    spec: {
      unit: "USD",
      models: [{ ...price, changes: moments.map((from) => ({ from, input: "1", output: "2" })) }],
    },
    verdict: "refused" as const,
    path: "spec.models[0].changes[1].from",
    says: /in order/,
  })),
  ...["2027-01-01", "2027-01-01T00:00:00", "2027-02-30T00:00:00Z", "tomorrow"].map((from) => ({
    title: `${from}, which is no moment`,
    spec: { unit: "USD", models: [{ ...price, changes: [{ from, input: "1", output: "2" }] }] },
    verdict: "refused" as const,
    path: "spec.models[0].changes[0].from",
  })),
  {
    title: "a change that leaves the output's price out",
    spec: { unit: "USD", models: [{ ...price, changes: [{ from: "2027-01-01T00:00:00Z", input: "1" }] }] },
    verdict: "refused",
    path: "spec.models[0].changes[0].output",
    says: /Required value/,
  },
]);
