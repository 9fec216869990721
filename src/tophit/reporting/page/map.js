// The map: every image a point, coloured by class or by a level above it; hover to see it, search for a class, click to mark its class, draw
// around some. Either a class is marked or a lasso holds images, never both.
import { html } from "./html.js";
import { signal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { bytes, content, count, labelOf, manyOf, plural } from "./data.js";
import { Picture } from "./cells.js";
import { chooseColoured, classesOf, slotsOf } from "./colours.js";
import { classesLike, ClassSearch, hintPlace, Legend, useDarkMode } from "./legend.js";
import { Part } from "./part.js";
import { createScatter } from "./scatter.js";

const { map } = content;
const points = new Float32Array(bytes(map.points).buffer);
const shown = new Uint32Array(bytes(map.pictures).buffer);
/** Ways to colour the points: by class and, in a hierarchy, by each level above it. */
const COLOURINGS = map.colourings.map(({ title, names, labels: packed }) => {
  const labels = new Uint16Array(bytes(packed).buffer);
  const classes = classesOf(points, labels);
  return { title, names, labels, classes, coloured: chooseColoured(classes) };
});

/** The point under the pointer; a signal, so that moving over the map redraws only the hint. */
const pointed = signal(null);

function Hint() {
  if (!pointed.value) return null;
  const { row, x, y } = pointed.value;
  return html`<div ...${hintPlace(x, y)}><${Picture} number=${shown[row]} alt="" /><span>${labelOf(shown[row])}</span></div>`;
}

export function EmbeddingMap() {
  const canvas = useRef(null);
  const scatter = useRef(null);
  const [text, setText] = useState("");
  const [lasso, setLasso] = useState(false);
  const [inside, setInside] = useState(null);
  const [by, setBy] = useState(Math.min(1, COLOURINGS.length - 1)); // the level above the class has fewer colours
  const { names, labels, classes, coloured, title } = COLOURINGS[by];
  const many = manyOf(title);
  const dark = useDarkMode();
  const marked = useMemo(() => classesLike(names, text), [text, names]);
  const slots = useMemo(() => slotsOf(marked.length ? marked : coloured), [marked, coloured]);
  const mark = (name) => {
    setText(name);
    setInside(null);
  };
  const surround = (rows) => {
    setText("");
    setInside(rows.length ? rows : null);
  };
  const clearLasso = () => setInside(null);

  useEffect(() => {
    const onHover = (row, x, y) => (pointed.value = row < 0 ? null : { row, x, y });
    const onClick = (row) => mark(names[labels[row]] ?? "");
    const made = createScatter(canvas.current, points, labels, { onHover, onClick, onLasso: surround, onEmpty: clearLasso }, names);
    scatter.current = made;
    window.tophitMap = made; // for tests, which look where a point is
    return () => made.destroy();
  }, [by]);
  useEffect(() => scatter.current?.paint(slots), [slots, by]);
  useEffect(() => {
    const of = new Set(marked);
    const rows = [...(inside ?? []), ...(marked.length ? [...labels.keys()].filter((row) => of.has(labels[row])) : [])];
    scatter.current?.select(rows);
    scatter.current?.name(marked.length ? of : null);
  }, [marked, inside, by]);

  const toggle = () => {
    scatter.current?.setLasso(!lasso);
    setLasso(!lasso);
    clearLasso();
  };
  const showAll = () => {
    scatter.current?.reset();
    clearLasso();
  };
  const recolour = (event) => {
    mark("");
    setLasso(false);
    setBy(Number(event.target.value));
  };
  const onKey = (event) => event.key === "Escape" && mark("");
  return html`<${Part} id="map" title="Map" kind="map" onKeyDown=${onKey} brief="${plural(labels.length, "image")} of ${plural(names.length, title, many)} as points">
    <p class="lead">Every point is an image; points that are close look alike to the model (${map.method}${content.models.length > 1 ? `, ${content.models[0]}` : ""}).
      ${map.method === "t-SNE" ? " Only closeness has a meaning; the sizes of groups and the gaps between them do not." : ""}</p>
    <div class="controls">${COLOURINGS.length > 1 && html`<label>Colour by <select value=${by} onChange=${recolour}>${COLOURINGS.map((one, place) => html`<option key=${place} value=${place}>${one.title}</option>`)}</select></label>`}<${ClassSearch} names=${names} text=${text} onText=${mark} what=${title} />
      <span class="muted small" role="status">${marked.length ? `${plural(marked.length, title, many)} marked` : text.trim() ? "no such class" : inside ? `${plural(inside.length, "image")} inside the lasso` : ""}</span>
      ${(text || inside) && html`<button class="plain clear" title="or press Escape" onClick=${() => mark("")}>Clear</button>`}</div>
    <div class="map-frame">
      <canvas ref=${canvas} tabindex="0" role="application" aria-label="Map of ${labels.length} images. Arrow keys move, plus and minus zoom, Enter marks the class of the image in the middle, Escape clears."></canvas>
      <div class="map-tools" role="toolbar" aria-label="Map tools">
        <button aria-label="Zoom in" onClick=${() => scatter.current?.zoomBy(1.5)}>+</button>
        <button aria-label="Zoom out" onClick=${() => scatter.current?.zoomBy(1 / 1.5)}>−</button>
        <button aria-label="Show all" onClick=${showAll}>⤢</button>
        <button aria-label="Lasso" aria-pressed=${lasso} title="Draw around points (or hold Shift)" onClick=${toggle}>◌</button>
      </div>
      <p class="map-facts">${labels.length < map.of ? `${count(labels.length)} of ` : ""}${plural(map.of, "image")} · ${plural(names.length, title, many)}</p>
      <${Hint} />
    </div>
    <${Legend} names=${names} classes=${classes} marked=${marked} slots=${slots} text=${text} dark=${dark} onText=${mark} many=${many} />
    ${inside?.length > 0 && html`<ul class="cells small-cells inside">${inside.slice(0, 60).map((row) => html`<li class="cell plain" key=${row} title=${labelOf(shown[row])}>
      <div class="frame"><${Picture} number=${shown[row]} alt=${labelOf(shown[row])} /></div></li>`)}</ul>`}
  <//>`;
}
