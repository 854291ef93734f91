/** What the browser keeps for this page; null where it lets pages keep nothing, as whoever blocks cookies has chosen. */
const allowed = (open: () => Storage): Storage | null => {
  try {
    return open();
  } catch {
    return null;
  }
};

/** Ends with the tab. */
export const tabStorage = allowed(() => sessionStorage);
/** Stays. */
export const browserStorage = allowed(() => localStorage);
