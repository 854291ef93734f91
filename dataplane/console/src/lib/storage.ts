/** Returns a storage of the browser; null where it lets pages store nothing, as when a person blocks cookies. */
const allowed = (open: () => Storage): Storage | null => {
  try {
    return open();
  } catch {
    return null;
  }
};

/** Storage that ends with the tab. */
export const tabStorage = allowed(() => sessionStorage);
/** Storage that stays. */
export const browserStorage = allowed(() => localStorage);
