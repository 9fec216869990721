// What a lasso holds: its classes, the largest first, and its items from the middle outwards, page by page.
import { html } from "./html.js";
import { useEffect, useRef, useState } from "preact/hooks";
import { Grid } from "./grid.js";
import { change, fail } from "./state.js";

const PAGE = 60;
const MOST_TOGETHER = 16;
const MOST_CLASSES = 12;

/**
 * Sort rows by their distance from the middle of them all.
 * @param {number[]} rows
 * @param {Float32Array} points
 */
export function nearestFirst(rows, points) {
  const mean = (shift) => rows.reduce((sum, row) => sum + points[2 * row + shift], 0) / rows.length;
  const [x, y] = [mean(0), mean(1)];
  const away = (row) => (points[2 * row] - x) ** 2 + (points[2 * row + 1] - y) ** 2;
  return [...rows].sort((a, b) => away(a) - away(b) || a - b);
}

/** @returns {[number, number][]} label numbers and counts, the most frequent first */
function countClasses(rows, labels) {
  const counts = new Map();
  for (const row of rows) counts.set(labels[row], (counts.get(labels[row]) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1] || a[0] - b[0]);
}

/**
 * @param {{rows: number[], labels: Uint16Array, names: string[], load: (rows: number[]) => Promise<any[]>, onClear: () => void}} props
 * `rows` are in the order in which they are shown.
 */
export function Lassoed({ rows, labels, names, load, onClear }) {
  const [label, setLabel] = useState(null);
  const [most, setMost] = useState(PAGE);
  const [items, setItems] = useState([]);
  const heading = useRef(null);
  const classes = countClasses(rows, labels);
  const wanted = label === null ? rows : rows.filter((row) => labels[row] === label);
  const shown = wanted.slice(0, most);
  useEffect(() => heading.current.scrollIntoView({ block: "start" }), []); // as far as its margin: part of the map stays
  useEffect(() => {
    let left = false;
    load(shown).then((found) => left || setItems(found), fail);
    return () => (left = true);
  }, [rows, label, most]);
  const left = wanted.length - shown.length;
  const choose = (number) => {
    setLabel(number === label ? null : number);
    setMost(PAGE);
  };
  const together = () => change({ view: "search", id: "", uploads: [], box: null, like: items.slice(0, MOST_TOGETHER).map((item) => item.id), unlike: [] });
  return html`<div class="chosen">
    <h2 ref=${heading}>${rows.length.toLocaleString("en")} inside, of ${classes.length.toLocaleString("en")} ${classes.length === 1 ? "class" : "classes"}
      <button class="plain" onClick=${together}>More like ${wanted.length > MOST_TOGETHER ? `the first ${MOST_TOGETHER}` : "these"}</button>
      <button class="plain" onClick=${onClear}>Clear</button></h2>
    ${classes.length > 1 && html`<ul class="chips" aria-label="Classes inside">${classes.slice(0, MOST_CLASSES).map(([number, count]) => html`<li key=${number}>
      <button class="chip choice" aria-pressed=${label === number} title=${names[number]} onClick=${() => choose(number)}><span class="name">${names[number] || "without a label"}</span> ${count}</button></li>`)}
      ${classes.length > MOST_CLASSES && html`<li class="muted small">and ${(classes.length - MOST_CLASSES).toLocaleString("en")} more classes</li>`}</ul>`}
    <p class="muted small">From the middle of the lasso outwards.</p>
    <${Grid} items=${items} label="Items inside the lasso" />
    ${left > 0 && html`<button class="plain wide more-items" onClick=${() => setMost(most + PAGE)}>Show ${Math.min(PAGE, left)} more; ${left.toLocaleString("en")} are left</button>`}
  </div>`;
}
