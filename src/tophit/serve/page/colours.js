// Which classes of a map have a colour, and which. People tell about a dozen colours apart: the other classes are grey.

const COLOURS = ["#4269d0", "#e08a00", "#e5484d", "#2f9e6e", "#a463f2", "#9c6b4e", "#0e95b5", "#d6409f", "#7c9a0c", "#506030", "#d090a0", "#904050"];
const GREY = { light: "#b4b6bd", dark: "#5c5f6a" };
export const MOST_COLOURED = COLOURS.length;
export const NO_COLOUR = -1;

/**
 * A class of a map: its number, how many points it has, and the middle of them.
 * @typedef {{label: number, size: number, x: number, y: number}} ClassFacts
 */

const middle = (values) => values.sort((a, b) => a - b)[values.length >> 1];

/**
 * The classes of a map, the largest first. The middle is the median, which a few points far away do not move.
 * @param {Float32Array} points  x and y of each
 * @param {Uint16Array} labels
 * @returns {ClassFacts[]}
 */
export function classesOf(points, labels) {
  const rows = new Map();
  labels.forEach((label, row) => (rows.has(label) ? rows.get(label).push(row) : rows.set(label, [row])));
  const all = [...rows].map(([label, own]) => ({
    label, size: own.length, x: middle(own.map((row) => points[2 * row])), y: middle(own.map((row) => points[2 * row + 1])),
  }));
  return all.sort((a, b) => b.size - a.size || a.label - b.label);
}

/**
 * The classes to colour: the largest, and among equally large ones those farthest from each other on the map.
 * @param {ClassFacts[]} classes  the largest first
 */
export function chooseColoured(classes) {
  const last = classes[Math.min(MOST_COLOURED, classes.length) - 1];
  const chosen = classes.filter((one) => last && one.size > last.size);
  const equals = classes.filter((one) => last && one.size === last.size);
  const away = (one) => Math.min(...chosen.map((other) => (one.x - other.x) ** 2 + (one.y - other.y) ** 2));
  while (chosen.length < MOST_COLOURED && equals.length) {
    let best = 0;
    if (chosen.length) equals.forEach((one, place) => { if (away(one) > away(equals[best])) best = place; });
    chosen.push(...equals.splice(best, 1));
  }
  return chosen.map((one) => one.label);
}

/**
 * The colour number of each class, or NO_COLOUR.
 * @param {number[]} coloured
 */
export const slotsOf = (coloured) => new Map(coloured.slice(0, MOST_COLOURED).map((label, place) => [label, place]));

/** The colour of a number, or grey, as CSS writes it. */
export const colourOf = (slot, dark) => COLOURS[slot] ?? GREY[dark ? "dark" : "light"];

/** The same as red, green and blue in one number, as a canvas keeps them. */
export function pixelOf(slot, dark) {
  const [red, green, blue] = colourOf(slot, dark).match(/[0-9a-f]{2}/g).map((part) => Number.parseInt(part, 16));
  return red | (green << 8) | (blue << 16);
}
