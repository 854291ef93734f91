/** Forms that Kubernetes gives to keys and values of labels (apimachinery's `IsQualifiedName` and `IsValidLabelValue`). */

/** Longest value of a label, and longest key without its prefix. */
export const LABEL_MAX_LENGTH = 63;
/** Longest prefix of a key, a DNS name. */
const PREFIX_MAX_LENGTH = 253;

const name = `[A-Za-z0-9](?:[-_.A-Za-z0-9]{0,${LABEL_MAX_LENGTH - 2}}[A-Za-z0-9])?`;

/** Patterns, to be put into others. */
export const labelPatterns = {
  key: `(?:[a-z0-9](?:[-.a-z0-9]{0,${PREFIX_MAX_LENGTH - 2}}[a-z0-9])?/)?${name}`,
  value: `(?:${name})?`,
} as const;

const wholeKey = new RegExp(`^${labelPatterns.key}$`);
const wholeValue = new RegExp(`^${labelPatterns.value}$`);
/** A dot between the labels of a DNS name, each with a letter or digit first and last. */
const looseDot = /^[^/]*(?:-\.|\.-|\.\.)[^/]*\//;

/** What a value must be, for a message. */
export const LABEL_FORM = `letters, digits, -, _ and ., at most ${LABEL_MAX_LENGTH}, with a letter or digit first and last`;
/** What a key must be, for a message. */
export const LABEL_KEY_FORM = `${LABEL_FORM}, after an optional DNS name and "/"`;

/** Whether Kubernetes takes it for a key of a label, and in lower case of an annotation. */
export const isLabelKey = (text: string): boolean => wholeKey.test(text) && !looseDot.test(text);
/** Whether Kubernetes takes it for the value of a label. */
export const isLabelValue = (text: string): boolean => wholeValue.test(text);
