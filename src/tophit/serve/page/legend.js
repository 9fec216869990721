// Beside a map: a search for classes by name, the classes that have a colour, the hint of a point. The report uses this too.
import { html } from "./html.js";
import { useEffect, useMemo, useState } from "preact/hooks";
import { colourOf, NO_COLOUR } from "./colours.js";

const MOST_LISTED = 24;
const MOST_OFFERED = 1000;
const HINT = { high: 210, half: 80 }; // pixels: its picture and a name of three lines

/**
 * The numbers of the classes whose names contain a text, an exact name alone; none for an empty text.
 * @param {string[]} names
 * @param {string} text
 */
export function classesLike(names, text) {
  const plain = (words) => words.toLowerCase().replaceAll("_", " "); // as the map writes names
  const wanted = plain(text.trim());
  if (!wanted) return [];
  const exact = names.findIndex((name) => name === text);
  return exact >= 0 ? [exact] : names.flatMap((name, number) => (plain(name).includes(wanted) ? [number] : []));
}

/** @param {{names: string[], text: string, onText: (text: string) => void, what?: string}} props  `what` the names are: classes, or a level above them */
export function ClassSearch({ names, text, onText, what = "class" }) {
  return html`<label class="class-search">${what[0].toUpperCase()}${what.slice(1)} <input type="search" value=${text} list="classes" placeholder="part of its name" autocomplete="off"
      onInput=${(event) => onText(event.target.value)} /></label>
    <datalist id="classes">${names.slice(0, MOST_OFFERED).map((name) => html`<option key=${name} value=${name} />`)}</datalist>`;
}

/**
 * @param {{names: string[], classes: any[], marked: number[], slots: Map<number, number>, text: string, dark: boolean, onText: (text: string) => void, many?: string}} props
 * `marked` are the classes that were searched for, `slots` the colours of classes.
 */
export function Legend({ names, classes, marked, slots, text, dark, onText, many = "classes" }) {
  const sizes = new Map(classes.map((one) => [one.label, one.size]));
  const coloured = classes.map((one) => one.label).filter((label) => slots.has(label) && names[label]);
  const listed = (marked.length ? marked : coloured).slice(0, MOST_LISTED);
  const more = marked.length - listed.length;
  const grey = marked.length ? 0 : names.length - coloured.length;
  return html`<ul class="map-legend" aria-label="Classes">${listed.map((number) => html`<li key=${number}>
      <button class="plain" title=${names[number]} aria-pressed=${text === names[number]} onClick=${() => onText(text === names[number] ? "" : names[number])}>
        <span class="swatch" style=${{ background: colourOf(slots.get(number) ?? NO_COLOUR, dark) }}></span>
        <span class="name">${names[number] || "without a label"}</span> <span class="muted">${(sizes.get(number) ?? 0).toLocaleString("en")}</span></button></li>`)}
    ${more > 0 && html`<li class="muted small">and ${more.toLocaleString("en")} more</li>`}
    ${grey > 0 && html`<li class="muted small"><span class="swatch" style=${{ background: colourOf(NO_COLOUR, dark) }}></span> ${grey.toLocaleString("en")} other ${many}; search for one to colour it</li>`}
  </ul>`;
}

/** Where the hint of a point goes: above it, or below where the map ends above; never across a side. */
export const hintPlace = (x, y) => ({
  class: `hint ${y < HINT.high ? "below" : ""}`,
  style: { left: `clamp(${HINT.half}px, ${x}px, calc(100% - ${HINT.half}px))`, top: `${y}px` },
});

/** Whether the page is dark, which may change while it is open. */
export function useDarkMode() {
  const mode = useMemo(() => matchMedia("(prefers-color-scheme: dark)"), []);
  const [dark, setDark] = useState(mode.matches);
  useEffect(() => {
    const follow = () => setDark(mode.matches);
    mode.addEventListener("change", follow);
    return () => mode.removeEventListener("change", follow);
  }, []);
  return dark;
}
