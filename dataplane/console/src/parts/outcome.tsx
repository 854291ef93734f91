/** How a request ended. */
import { Fragment } from "preact";
import type { Request } from "../api/schema.ts";
import { failureOf } from "../lib/health.ts";
import { formatCount } from "../texts/texts.ts";
import type { Texts } from "../texts/en.ts";
import { Badge } from "./basics.tsx";

/** What a caller did wrong is no alarm. */
const badges = { service: "bad", caller: "warn" } as const;

export const milliseconds = (value: number | null, t: Texts): string =>
  value === null ? "–" : `${formatCount(value, t)} ms`;

/** Status and code. An answer that broke off has a good status, sent before, and a code that says why; it wraps between words. */
export function Outcome({ request }: { request: Request }) {
  const { status, error_code: code } = request;
  const failure = failureOf(request);
  return (
    <>
      <Badge kind={failure === null ? "good" : badges[failure]}>{String(status)}</Badge>
      {code !== null && (
        <span class="second">
          {code.split("_").map((word, index) => (
            <Fragment key={index}>
              {index > 0 && (
                <>
                  _<wbr />
                </>
              )}
              {word}
            </Fragment>
          ))}
        </span>
      )}
    </>
  );
}
