/** How long names may be that others wrote. */

/** Characters of the name of a key (rule 5.5), and of a person as it is shown. */
export const MOST_NAME = 500;

/** Characters of a model's name, which is whatever a client wrote: as it is told and kept (rule 14.1), and asked for in a batch. */
export const MOST_MODEL_NAME = 200;
