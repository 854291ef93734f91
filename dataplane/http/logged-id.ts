/** Ids that clients choose, as far as they may stand in the log (rule 7.15). */

const form = /^[A-Za-z0-9_.:-]{1,128}$/;
/** A key of ours anywhere, or a word that begins like anybody's key. */
const key = /sk-(?:adm-)?svc-|(?:^|[^A-Za-z0-9])sk-/i;

/** Returns the id; undefined when it is malformed or looks like a key that was put in the wrong place. */
export const loggedId = (id: string): string | undefined => (form.test(id) && !key.test(id) ? id : undefined);
