/** Whether this is `npm test -- --all`, which `.ci/run` calls: what is sampled elsewhere is tried wholly here. */
export const isWhole = process.env["TEST_ALL"] === "true";

/** With how many cases a property is tried: `npm test -- --all` takes all of them, else it is a tenth, five at least. */
export const runs = (all: number): number =>
  isWhole ? all : Math.min(all, Math.max(5, Math.ceil(all / 10)));
