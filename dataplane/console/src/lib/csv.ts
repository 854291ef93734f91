/** Tables as files for spreadsheets. */

/** A cell that a spreadsheet would run as a formula is led by an apostrophe (rule 11.6); numbers stay numbers. */
export function csvCell(value: string): string {
  const isNumber = /^-?\d+(\.\d+)?$/.test(value);
  const safe = !isNumber && /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export const csv = (rows: readonly (readonly string[])[]): string =>
  rows.map((row) => `${row.map(csvCell).join(",")}\r\n`).join("");

/** Hands the browser a file. */
export function download(name: string, content: BlobPart, type: string): void {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // The browser has begun to read it by then.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
