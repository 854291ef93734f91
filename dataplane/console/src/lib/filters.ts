/** The filters of a view, which are parts of its address. */
import { place, refine } from "../router.ts";
import { useStore } from "./store.ts";

/** Returns the value and the `onInput` of each filter's field. A changed filter begins with the newest rows again. */
export function useFilters() {
  const { query } = useStore(place);
  return (name: string) => ({
    value: query.get(name) ?? "",
    onInput: (value: string) => refine({ [name]: value, after: "" }),
  });
}

export const useFilter = (name: string) => useFilters()(name);
