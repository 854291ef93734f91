/** Longest names that clients may give. */

/** Characters of the name of a key (rule 5.5), and of a person as it is shown. */
export const MOST_NAME = 500;

/** Characters of a model name from a client, in errors, in records (rule 14.1) and in batches. */
export const MOST_MODEL_NAME = 200;
