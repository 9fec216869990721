// The content and the pictures in the report's file, and how numbers are written.
import { signal } from "@preact/signals";

const read = (id) => JSON.parse(document.getElementById(id).textContent);

export const content = read("report-content");
const pictures = read("report-pictures");

/** The place of the open query in the list of queries, or null. */
export const opened = signal(null);

/** @param {number} number  an image's; the address of its small picture, or null */
export function source(number) {
  const data = pictures.data[number];
  if (data == null) return null;
  return pictures.folder ? `${pictures.folder}/${data}` : `data:image/webp;base64,${data}`;
}
/** Whether any image can be seen; a report of a feature file has none. */
export const hasPictures = pictures.data.some((data) => data != null);
export const labelOf = (number) => pictures.labels[pictures.label[number]];
/** The label for narrow places: of a path its last level. */
export const shortOf = (number) => (content.words.near ? labelOf(number).split("/").at(-1) : labelOf(number));
export const nameOf = (number) => pictures.name[number];

export const count = (number) => number.toLocaleString("en");
export const percent = (value, digits = 1) => (value == null ? "–" : `${(100 * value).toFixed(digits)}%`);
/** A difference in percent points, with its sign. */
export function points(value) {
  if (value == null) return "–";
  const size = Math.abs(100 * value).toFixed(1);
  return Number(size) ? `${value < 0 ? "−" : "+"}${size}` : size;
}
export const bounds = (pair, write = (value) => (100 * value).toFixed(1)) => (pair ? `${write(pair[0])} to ${write(pair[1])}` : "");
/** Whether a difference is significant, and in which direction: its interval excludes 0 and p is below 0.05. */
export function verdictOn({ bounds: pair, p }) {
  if (!pair || p == null || p >= 0.05) return "";
  return pair[0] > 0 ? "up" : pair[1] < 0 ? "down" : "";
}
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
/** The plural of what images are named by: a class, a label, or a level of a hierarchy. */
export function manyOf(word) {
  if (/\d$/.test(word)) return `names of ${word}`;
  return /(s|x|ch|sh)$/.test(word) ? `${word}es` : /[^aeiou]y$/.test(word) ? `${word.slice(0, -1)}ies` : `${word}s`;
}

/** @param {string} text  base64; the bytes */
export const bytes = (text) => Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
