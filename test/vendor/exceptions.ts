/**
 * What of Gapura's answers does not fit the vendors' types, and is meant so. A fault that begins so is left out.
 * `tapped`: no golden file needs it, only what integration tests are answered.
 */
export const exceptions: readonly {
  readonly fault: RegExp;
  readonly why: string;
  readonly tapped?: boolean;
  /** The vendor's own API does so: no gateway is blamed for it. */
  readonly vendors?: true;
}[] = [
  {
    fault: /^Responses(?:Answer|Event\/response) must have required property 'output_text'/,
    why: "The SDK itself adds it; the vendor's API does not send it.",
    vendors: true,
  },
  {
    fault: /^Responses(?:Answer|Event\/response)\/user must be string/,
    why: "The vendor sends null where no user was given, and its other types allow that.",
    vendors: true,
  },
  {
    fault: /^ResponsesEvent\/response\/usage must be object/,
    why: "The vendor sends null until the end (dialects.md §C3).",
    vendors: true,
  },
  {
    fault:
      /^Responses(?:Answer|Event\/response)\/incomplete_details(?:\/reason must be equal| must be null| must match a schema)/,
    why: "A pause is told as `max_tool_calls` (dialects.md §D3): the vendor ends such a response as completed.",
  },
  {
    fault: /^Responses.* must be in oneOf .*"tagValue":"x_search(?:_call)?"/,
    why: "x_search is an extension (dialects.md §E).",
  },
  {
    fault: /^Responses(?:Answer|Event\/response)\/tool_choice/,
    why: "The client's own choice, repeated; the vendor's type lacks the newer name `web_search`, which its API takes.",
    vendors: true,
  },
  {
    fault:
      /^Responses(?:Answer|Event\/response)\/tools\[\](?: must have required property 'description'|\/search_context_size)/,
    why: "The client's own tools, repeated as it wrote them; a null counts as absent.",
    vendors: true,
    tapped: true,
  },
  {
    fault: /^Messages(?:Answer\/content\[\]|Event\/content_block)\/name must be equal to one of the allowed/,
    why: "x_search is an extension (dialects.md §E); the call's other fields are judged.",
  },
  {
    fault: /^MessagesError\/error value of tag "type" .*"tagValue":"request_too_large"/,
    why: "The vendor's API says it (dialects.md §A2); its types lack it.",
    vendors: true,
    tapped: true,
  },
  {
    fault: /^MessagesModel\/capabilities\/code_execution must be object/,
    why: "The contract makes it a bare false (dialects.md §A6).",
  },
];
