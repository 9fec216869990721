// The results as a CSV file, as `tophit search --csv` prints them.
import { html } from "./html.js";

const OWN = ["rank", "score", "chance", "id", "others"];
const text = (value) => (value == null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value));
const quoted = (value) => (/[",\n\r]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);

/** @param {any[]} results */
export function asCsv(results) {
  const rows = results.map(({ rank, score, chance, id, others, metadata }) => {
    const own = { rank, score, ...(chance == null ? {} : { chance }), id, ...(others == null ? {} : { others }) };
    return { ...own, ...Object.fromEntries(Object.entries(metadata).map(([name, value]) => [OWN.includes(name) ? `metadata.${name}` : name, value])) };
  });
  const columns = [...new Set(rows.flatMap(Object.keys))];
  const lines = [columns, ...rows.map((row) => columns.map((name) => row[name]))];
  return lines.map((line) => line.map((value) => quoted(text(value))).join(",")).join("\n") + "\n";
}

function save(results) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([asCsv(results)], { type: "text/csv" }));
  link.download = "results.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export const Download = ({ results }) => results?.length > 0 && html`<button class="link small download" onClick=${() => save(results)}>Save as CSV</button>`;
