// Points on a canvas: pan, zoom, hover, click, lasso. Points are written as pixels, which is many times faster without
// a graphics card than copying an image for each.
// Canvas 2D and not WebGL: libraries such as regl compile their shaders' drivers with new Function, which the page's
// content security policy forbids, and this is all that a map of this size needs.

import { classesOf, NO_COLOUR, pixelOf } from "./colours.js";
import { drawNames, placeNames } from "./map_names.js";
import { disc, inside } from "./shapes.js";

const REACH = 10; // pixels around the pointer in which a point is hit
const CELLS = 64; // of the grid that finds the points near a place

/**
 * @typedef {Object} Scatter
 * @property {(factor: number) => void} zoomBy
 * @property {() => void} reset
 * @property {(lasso: boolean) => void} setLasso
 * @property {(rows: number[]) => void} select
 * @property {(slots: Map<number, number>) => void} paint  give classes colours, the others are grey
 * @property {(labels: Set<number>|null) => void} name  write the names of these classes; null: of all that fit
 * @property {() => {label: number, x: number, y: number, width: number}[]} named  the names and where they are
 * @property {(row: number) => [number, number]} place  where a point is on the screen, from the canvas' corner
 * @property {() => void} destroy
 */

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Float32Array} points  x and y of each, within -1..1
 * @param {Uint16Array} labels
 * @param {{onHover: (row: number, x: number, y: number) => void, onClick: (row: number) => void, onLasso: (rows: number[]) => void, onEmpty?: () => void}} told
 *   onEmpty: a click where no point is
 * @param {string[]} names  of the labels
 * @returns {Scatter}
 */
export function createScatter(canvas, points, labels, told, names) {
  const context = canvas.getContext("2d");
  const count = labels.length;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const view = { x: 0, y: 0, zoom: 1 };
  let selected = new Set();
  let lassoMode = false;
  let lasso = null;
  let hovered = -1;
  let pending = 0;
  let drawn = null; // the points as they were last drawn
  let stamp = [];
  let slots = new Map();
  let wantedNames = null;
  let placed = [];
  const classes = classesOf(points, labels);
  let size = { width: 1, height: 1, scale: 1 };
  const pointers = new Map();
  let moved = false;

  const cells = new Map(); // cell number -> rows
  const cellOf = (value) => Math.max(0, Math.min(CELLS - 1, Math.floor(((value + 1) / 2) * CELLS)));
  for (let row = 0; row < count; row++) {
    const cell = cellOf(points[2 * row]) * CELLS + cellOf(points[2 * row + 1]);
    if (!cells.has(cell)) cells.set(cell, []);
    cells.get(cell).push(row);
  }

  const reachOf = (shift) => points.reduce((most, value, at) => (at % 2 === shift ? Math.max(most, Math.abs(value)) : most), 1e-3);
  const [wideness, highness] = [reachOf(0), reachOf(1)];
  /** Pixels to a unit of the map; at zoom 1 all points fill the canvas. */
  const unit = () => 0.46 * Math.min(size.width / wideness, size.height / highness) * view.zoom;
  const toScreen = (x, y) => [size.width / 2 + (x - view.x) * unit(), size.height / 2 - (y - view.y) * unit()];
  const toMap = (x, y) => [(x - size.width / 2) / unit() + view.x, (size.height / 2 - y) / unit() + view.y];

  /** All points as an image of the canvas' size. */
  function drawPoints() {
    const { width, height, scale } = size;
    const [wide, high] = [canvas.width, canvas.height];
    const image = context.createImageData(wide, high);
    const pixels = new Uint32Array(image.data.buffer);
    const step = unit();
    const some = selected.size > 0;
    const slotOf = (row) => slots.get(labels[row]) ?? NO_COLOUR;
    const colours = new Map([NO_COLOUR, ...slots.values()].map((slot) => [slot, pixelOf(slot, dark.matches)]));
    for (const pass of [0, 1, 2]) { // what is grey lies below, what is selected above
      const strength = some && pass < 2 ? 45 : 225; // what is not selected fades
      for (let row = 0; row < count; row++) {
        if (pass !== (selected.has(row) ? 2 : slotOf(row) === NO_COLOUR ? 0 : 1)) continue;
        const x = Math.round(scale * (width / 2 + (points[2 * row] - view.x) * step));
        const y = Math.round(scale * (height / 2 - (points[2 * row + 1] - view.y) * step));
        if (x < -9 || y < -9 || x > wide + 9 || y > high + 9) continue;
        const colour = colours.get(slotOf(row));
        for (const [right, down, covered] of stamp) {
          const [column, line] = [x + right, y + down];
          if (column < 0 || line < 0 || column >= wide || line >= high) continue;
          const place = line * wide + column;
          const opacity = Math.round(strength * covered);
          if (opacity >= pixels[place] >>> 24) pixels[place] = colour | (opacity << 24);
        }
      }
    }
    return image;
  }

  function draw() {
    pending = 0;
    if (!drawn) {
      drawn = drawPoints();
      const wanted = wantedNames ? classes.filter((one) => wantedNames.has(one.label)) : classes;
      const shown = [...wanted].sort((a, b) => Number(slots.has(b.label)) - Number(slots.has(a.label)));
      placed = placeNames(context, shown, names, toScreen, size);
    }
    context.putImageData(drawn, 0, 0);
    context.setTransform(size.scale, 0, 0, size.scale, 0, 0);
    drawNames(context, placed, dark.matches ? "#f2f3f7" : "#1b1c22", dark.matches ? "#1d1f26" : "#ffffff");
    context.strokeStyle = dark.matches ? "#fff" : "#111";
    if (hovered >= 0) {
      const [x, y] = toScreen(points[2 * hovered], points[2 * hovered + 1]);
      context.lineWidth = 2;
      context.beginPath();
      context.arc(x, y, 7, 0, 2 * Math.PI);
      context.stroke();
    }
    if (lasso && lasso.length > 1) {
      context.lineWidth = 1.5;
      context.setLineDash([5, 4]);
      context.beginPath();
      lasso.forEach(([x, y], number) => (number ? context.lineTo(x, y) : context.moveTo(x, y)));
      context.closePath();
      context.stroke();
      context.fillStyle = "rgb(99 102 241 / 0.14)";
      context.fill();
      context.setLineDash([]);
    }
  }
  /** Redraw the ring and the lasso; the points stay. */
  const redrawMarks = () => (pending ||= requestAnimationFrame(draw));
  const redraw = () => {
    drawn = null;
    redrawMarks();
  };

  function resize() {
    const area = canvas.getBoundingClientRect();
    size = { width: area.width || 1, height: area.height || 1, scale: window.devicePixelRatio || 1 };
    canvas.width = Math.round(size.width * size.scale);
    canvas.height = Math.round(size.height * size.scale);
    stamp = disc((count > 4000 ? 2.2 : 3) * size.scale);
    redraw();
  }

  /** The point nearest to a place on the screen, or -1 if none is within reach. */
  function nearest(x, y) {
    const [mapX, mapY] = toMap(x, y);
    const reach = REACH / unit();
    let best = -1;
    let least = reach * reach;
    for (let i = cellOf(mapX - reach); i <= cellOf(mapX + reach); i++) {
      for (let j = cellOf(mapY - reach); j <= cellOf(mapY + reach); j++) {
        for (const row of cells.get(i * CELLS + j) ?? []) {
          const distance = (points[2 * row] - mapX) ** 2 + (points[2 * row + 1] - mapY) ** 2;
          if (distance < least) [best, least] = [row, distance];
        }
      }
    }
    return best;
  }

  function zoomAt(factor, x, y) {
    const [mapX, mapY] = toMap(x, y);
    view.zoom = Math.max(0.5, Math.min(200, view.zoom * factor));
    const [nowX, nowY] = toMap(x, y);
    view.x += mapX - nowX;
    view.y += mapY - nowY;
    redraw();
  }

  function hover(row, x = 0, y = 0) {
    if (row === hovered) return;
    hovered = row;
    canvas.style.cursor = lassoMode ? "crosshair" : row >= 0 ? "pointer" : "grab";
    told.onHover(row, x, y);
    redrawMarks();
  }

  const at = (event) => {
    const area = canvas.getBoundingClientRect();
    return [event.clientX - area.left, event.clientY - area.top];
  };
  const onDown = (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, at(event));
    moved = false;
    if ((lassoMode || event.shiftKey) && pointers.size === 1) lasso = [at(event)];
  };
  const onMove = (event) => {
    const [x, y] = at(event);
    const before = pointers.get(event.pointerId);
    if (!before) return hover(nearest(x, y), ...at(event));
    if (Math.hypot(x - before[0], y - before[1]) > 2) moved = true;
    if (lasso) {
      lasso.push([x, y]);
    } else if (pointers.size === 2) {
      const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
      const [old, now] = [before, [x, y]].map((one) => Math.hypot(one[0] - other[0], one[1] - other[1]));
      zoomAt(now / Math.max(1, old), (x + other[0]) / 2, (y + other[1]) / 2);
    } else if (moved) {
      view.x -= (x - before[0]) / unit();
      view.y += (y - before[1]) / unit();
    }
    if (moved || lasso) pointers.set(event.pointerId, [x, y]);
    redraw();
  };
  const onUp = (event) => {
    const [x, y] = at(event);
    pointers.delete(event.pointerId);
    if (lasso) {
      const polygon = lasso;
      lasso = null;
      const rows = [];
      if (polygon.length > 2) {
        for (let row = 0; row < count; row++) {
          if (inside(polygon, ...toScreen(points[2 * row], points[2 * row + 1]))) rows.push(row);
        }
      }
      selected = new Set(rows);
      told.onLasso(rows);
    } else if (!moved && event.type === "pointerup") {
      const row = nearest(x, y);
      if (row >= 0) told.onClick(row);
      else told.onEmpty?.();
    }
    redraw();
  };
  const onWheel = (event) => {
    event.preventDefault();
    zoomAt(Math.exp(-event.deltaY * 0.0015), ...at(event));
  };
  const onLeave = () => hover(-1);
  /** Arrows pan, + and - zoom, Enter takes the point nearest to the middle, Escape drops a lasso that is being drawn. */
  const onKey = (event) => {
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    const middle = [size.width / 2, size.height / 2];
    if (event.key in steps) {
      view.x += (steps[event.key][0] * 40) / unit();
      view.y += (steps[event.key][1] * 40) / unit();
    } else if (event.key === "+" || event.key === "=") zoomAt(1.4, ...middle);
    else if (event.key === "-") zoomAt(1 / 1.4, ...middle);
    else if (event.key === "0") Object.assign(view, { x: 0, y: 0, zoom: 1 });
    else if (event.key === "Enter" && hovered >= 0) return told.onClick(hovered);
    else if (event.key === "Escape") {
      lasso = null;
      return redraw();
    }
    else return;
    event.preventDefault();
    let best = -1;
    let least = Infinity;
    for (let row = 0; row < count; row++) {
      const distance = (points[2 * row] - view.x) ** 2 + (points[2 * row + 1] - view.y) ** 2;
      if (distance < least) [best, least] = [row, distance];
    }
    hover(best, ...(best >= 0 ? toScreen(points[2 * best], points[2 * best + 1]) : [0, 0]));
    redraw();
  };

  const events = { pointerdown: onDown, pointermove: onMove, pointerup: onUp, pointercancel: onUp, pointerleave: onLeave, keydown: onKey };
  for (const [name, run] of Object.entries(events)) canvas.addEventListener(name, run);
  canvas.addEventListener("wheel", onWheel, { passive: false });
  dark.addEventListener("change", resize);
  const watcher = new ResizeObserver(resize);
  watcher.observe(canvas);
  resize();

  return {
    zoomBy: (factor) => zoomAt(factor, size.width / 2, size.height / 2),
    reset() {
      Object.assign(view, { x: 0, y: 0, zoom: 1 });
      redraw();
    },
    setLasso(on) {
      lassoMode = on;
      canvas.style.cursor = on ? "crosshair" : "grab";
    },
    select(rows) {
      selected = new Set(rows);
      redraw();
    },
    paint(wanted) {
      slots = wanted;
      redraw();
    },
    name(wanted) {
      wantedNames = wanted;
      redraw();
    },
    named: () => placed,
    place: (row) => toScreen(points[2 * row], points[2 * row + 1]),
    destroy() {
      cancelAnimationFrame(pending);
      watcher.disconnect();
      dark.removeEventListener("change", resize);
      canvas.removeEventListener("wheel", onWheel);
      for (const [name, run] of Object.entries(events)) canvas.removeEventListener(name, run);
    },
  };
}
