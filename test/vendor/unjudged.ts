/**
 * The user agent of clients whose upstreams break the vendors' types on purpose, such as by leaving the usage out: a relay
 * passes that on, so that what they are answered is held to no type.
 */
export const UNJUDGED_AGENT = "gapura-unjudged";
