// The names of classes on a map, each by the middle of its class, as many as fit without touching each other.

const FONT = "600 12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif";
const HIGH = 15;
const APART = { x: 12, y: 9 }; // pixels between two names
const MOST_LETTERS = 26;
const ASIDE = [-HIGH - 3, HIGH + 3, 0]; // above the middle of its class, or below, or on it: points are not hidden if there is room

const short = (name) => (name.length > MOST_LETTERS ? `${name.slice(0, MOST_LETTERS - 1).trimEnd()}…` : name);
const touch = (a, b) => Math.abs(a.x - b.x) < (a.width + b.width) / 2 + APART.x && Math.abs(a.y - b.y) < HIGH + APART.y;

/**
 * Find places for names: those of the first classes win.
 * @param {CanvasRenderingContext2D} context
 * @param {import("./colours.js").ClassFacts[]} classes
 * @param {string[]} names
 * @param {(x: number, y: number) => [number, number]} toScreen
 * @param {{width: number, height: number}} size
 */
export function placeNames(context, classes, names, toScreen, size) {
  context.font = FONT;
  const placed = [];
  for (const { label, x: mapX, y: mapY } of classes) {
    const [x, y] = toScreen(mapX, mapY);
    if (!names[label] || x < 0 || y < 0 || x > size.width || y > size.height) continue;
    const text = short(names[label].replaceAll("_", " "));
    const width = context.measureText(text).width;
    const inside = Math.max(width / 2 + 4, Math.min(size.width - width / 2 - 4, x));
    const tries = ASIDE.map((shift) => ({ label, text, width, x: inside, y: y + shift }));
    const free = tries.find((one) => one.y > HIGH / 2 && one.y < size.height - HIGH / 2 && !placed.some((other) => touch(one, other)));
    if (free) placed.push(free);
  }
  return placed;
}

/** Write names with a halo of the ground's colour, so that points do not make them hard to read. */
export function drawNames(context, placed, ink, ground) {
  context.font = FONT;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.lineJoin = "round";
  context.lineWidth = 4;
  context.strokeStyle = ground;
  context.fillStyle = ink;
  for (const { text, x, y } of placed) {
    context.strokeText(text, x, y);
    context.fillText(text, x, y);
  }
}
