import { isUtf8 } from "node:buffer";
import htmlEncodingSniffer from "html-encoding-sniffer";

/**
 * Decodes a page's bytes: by its BOM, then the header's charset, then the charset that the page declares; else as UTF-8 if
 * the bytes are UTF-8, else as windows-1252. NUL is replaced: some stores and models refuse it.
 */
export function decodePage(
  bytes: Buffer,
  kind: "html" | "xml" | "text" | "json",
  label: string | null,
): string {
  const fallback = isUtf8(bytes) ? "UTF-8" : "windows-1252";
  const declared = label === null ? {} : { transportLayerEncodingLabel: label };
  const encoding =
    kind === "html" || kind === "xml"
      ? htmlEncodingSniffer(bytes, { xml: kind === "xml", defaultEncoding: fallback, ...declared })
      : (bomEncoding(bytes) ?? label ?? (kind === "json" ? "UTF-8" : fallback));
  return decoderOf(encoding, fallback).decode(bytes).replaceAll("\u0000", "\ufffd");
}

function bomEncoding(bytes: Buffer): string | null {
  if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) return "UTF-8";
  if (bytes[0] === 0xfe && bytes[1] === 0xff) return "UTF-16BE";
  if (bytes[0] === 0xff && bytes[1] === 0xfe) return "UTF-16LE";
  return null;
}

/** Returns a decoder; unknown labels and WHATWG's "replacement" encodings get the fallback. */
function decoderOf(encoding: string, fallback: string): TextDecoder {
  try {
    return new TextDecoder(encoding);
  } catch {
    return new TextDecoder(fallback);
  }
}
