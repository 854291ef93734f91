/** The filters of a view, which are parts of its address. */
import { place, refine } from "../router.ts";
import { useStore } from "./store.ts";

/**
 * Returns the value and the `onInput` of each filter's field. A changed filter begins with the newest rows again.
 * @param filters where the rows are chosen: `here` it is among those of the page that was read, which stays
 */
export function useFilters(filters: "service" | "here" = "service") {
  const { query } = useStore(place);
  return (name: string) => ({
    value: query.get(name) ?? "",
    onInput: (value: string) => refine({ [name]: value, ...(filters === "here" ? {} : { after: "" }) }),
  });
}

export const useFilter = (name: string) => useFilters()(name);
