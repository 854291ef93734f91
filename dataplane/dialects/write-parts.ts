/** Content blocks as the parts that Chat and Responses have: text, images and files. */
import { markBreakpoint } from "./cache-breakpoints.ts";
import { unsupportedContent } from "./capabilities.ts";
import type { Carry } from "./codecs.ts";
import { dataUrl, detailOf, fileName, textsBefore } from "./media.ts";
import type { ContentBlockParam, DocumentBlock, ImageBlock, JsonObject } from "./messages/types.ts";
import { plainBlockText } from "./plain-blocks.ts";

/** How Chat or Responses writes a part. */
export interface PartForm {
  readonly text: (text: string) => JsonObject;
  /** @param url an address, or a data URL. @param detail how closely to look; undefined: the client did not say. */
  readonly image: (url: string, detail: string | undefined) => JsonObject;
  readonly file: (file: { readonly filename: string; readonly file_data: string }) => JsonObject;
  /** A document by its address; absent: the dialect takes none. */
  readonly fileUrl?: (url: string) => JsonObject;
}

/** @throws ApiError `unsupported_content` for a block that the dialect has no part for. */
export function writeParts(block: ContentBlockParam, carry: Carry, form: PartForm): JsonObject[] {
  const parts = partsOf(block, carry, form);
  return carry.serverTools ? parts : markBreakpoint(parts, block);
}

function partsOf(block: ContentBlockParam, carry: Carry, form: PartForm): JsonObject[] {
  if (block.type === "image") return [writeImage(block, carry, form)];
  if (block.type === "document") return writeDocument(block, carry, form);
  return [form.text(plainBlockText(block, carry))];
}

function writeImage(image: ImageBlock, carry: Carry, form: PartForm): JsonObject {
  const { source } = image;
  if (source.type === "file") throw unsupportedContent(image, carry, "files that were not inlined");
  const url = source.type === "url" ? source.url : dataUrl(source.media_type, source.data);
  return form.image(url, detailOf(image));
}

function writeDocument(block: DocumentBlock, carry: Carry, form: PartForm): JsonObject[] {
  const { source } = block;
  const before = textsBefore(block).map((text) => form.text(text));
  switch (source.type) {
    case "text":
      return [...before, form.text(source.data)];
    case "content":
      return [
        ...before,
        ...(typeof source.content === "string"
          ? [form.text(source.content)]
          : source.content.flatMap((inner) => writeParts(inner, carry, form))),
      ];
    case "base64": {
      // Audio under another name would be had at the price of text (rule 10.5).
      if (source.media_type !== "application/pdf")
        throw unsupportedContent(
          block,
          carry,
          `documents of type ${source.media_type.slice(0, 80)} in base64`,
        );
      const file = { filename: fileName(block), file_data: dataUrl(source.media_type, source.data) };
      return [...before, form.file(file)];
    }
    case "url":
      if (form.fileUrl === undefined) throw unsupportedContent(block, carry, "documents by URL");
      return [...before, form.fileUrl(source.url)];
    case "file":
      throw unsupportedContent(block, carry, "files that were not inlined");
  }
}
