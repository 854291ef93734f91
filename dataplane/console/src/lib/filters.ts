/** The filters of a view, which stand in its address. */
import { place, refine } from "../router.ts";
import { useStore } from "./store.ts";

/** Of a field that filters: what the address says, and how it changes. Another filter begins with its newest rows. */
export function useFilters() {
  const { query } = useStore(place);
  return (name: string) => ({
    value: query.get(name) ?? "",
    onInput: (value: string) => refine({ [name]: value, after: "" }),
  });
}

export const useFilter = (name: string) => useFilters()(name);
