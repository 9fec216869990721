// The map of the index: names of classes, a search for them, hover to see an item, click to search from it, a lasso.
import { html } from "./html.js";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, getBinary, getWhenReady, picture } from "./api.js";
import { chooseColoured, classesOf, MOST_COLOURED, slotsOf } from "./colours.js";
import { classesLike, ClassSearch, Legend, useDarkMode } from "./legend.js";
import { Lassoed, nearestFirst } from "./lassoed.js";
import { createScatter } from "./scatter.js";
import { about, fail, say, searchFrom } from "./state.js";

const known = new Map(); // row -> item
let drawn = ""; // the map whose rows these are

/** @param {number[]} rows */
async function itemsOf(rows) {
  const missing = rows.filter((row) => !known.has(row));
  if (missing.length) {
    const found = await get(`/map/items?map=${drawn}&${missing.map((row) => `row=${row}`).join("&")}`);
    if (found.items.length === missing.length) found.items.forEach((item, place) => known.set(missing[place], item));
    else if (missing.length === 1) return [];
    else for (const row of missing) await itemsOf([row]); // some are gone meanwhile: ask for each
  }
  return rows.filter((row) => known.has(row)).map((row) => known.get(row));
}

/** Load the map; `gone` says that nobody waits for it any more. */
async function load(gone) {
  const made = await getWhenReady("/map", () => !gone());
  if (gone()) return null;
  known.clear();
  drawn = made.map;
  const data = await getBinary(`/map/points?map=${drawn}`);
  const points = new Float32Array(data, 0, 2 * made.count);
  const labels = new Uint16Array(data, 8 * made.count, made.count);
  const classes = classesOf(points, labels);
  return { ...made, labelNames: made.labels, points, labels, classes, coloured: chooseColoured(classes) };
}

export function EmbeddingMap() {
  const canvas = useRef(null);
  const scatter = useRef(null);
  const wanted = useRef(-1);
  const [facts, setFacts] = useState(null);
  const [lasso, setLasso] = useState(false);
  const [hint, setHint] = useState(null);
  const [rows, setRows] = useState([]);
  const [text, setText] = useState("");
  const dark = useDarkMode();
  const marked = useMemo(() => (facts ? classesLike(facts.labelNames, text) : []), [facts, text]);
  const slots = useMemo(() => slotsOf(marked.length ? marked : (facts?.coloured ?? [])), [facts, marked]);

  async function onHover(row, x, y) {
    wanted.current = row;
    if (row < 0) return setHint(null);
    const [item] = await itemsOf([row]).catch(() => []);
    if (wanted.current === row && item) setHint({ item, x, y });
  }
  const onClick = (row) => itemsOf([row]).then(([item]) => item && searchFrom(item.id), fail);
  const mark = (name) => {
    setText(name);
    setRows([]);
  };

  useEffect(() => {
    let left = false;
    load(() => left).then((made) => {
      if (left || !made) return;
      const onLasso = (inside) => {
        setText("");
        setRows(nearestFirst(inside, made.points));
        say(`${inside.length} items are inside.`);
      };
      scatter.current = createScatter(canvas.current, made.points, made.labels, { onHover, onClick, onLasso }, made.labelNames);
      window.tophitMap = scatter.current; // for tests, which look where a point is
      setFacts(made);
    }).catch(fail);
    return () => {
      left = true;
      scatter.current?.destroy();
    };
  }, []);
  useEffect(() => scatter.current?.paint(slots), [slots]);
  useEffect(() => {
    const of = new Set(marked);
    const inside = marked.length ? [...facts.labels.keys()].filter((row) => of.has(facts.labels[row])) : rows;
    scatter.current?.select(inside);
    scatter.current?.name(marked.length ? of : null);
  }, [facts, marked, rows]);

  const toggle = () => {
    scatter.current?.setLasso(!lasso);
    setLasso(!lasso);
  };
  return html`<section class="map" aria-label="Map of the index" onKeyDown=${(event) => event.key === "Escape" && mark("")}>
    ${facts && html`<div class="map-bar">
      <${ClassSearch} names=${facts.labelNames} text=${text} onText=${mark} />
      <span class="muted small" role="status">${marked.length ? `${marked.length} of ${facts.labelNames.length} classes marked${marked.length > MOST_COLOURED ? `, the first ${MOST_COLOURED} in colour` : ""}` : text.trim() ? "no such class" : ""}</span>
      ${(text || rows.length > 0) && html`<button class="plain" title="or press Escape" onClick=${() => mark("")}>Clear</button>`}
    </div>`}
    <div class="map-frame">
      <canvas ref=${canvas} tabindex="0" role="application"
        aria-label="Map of ${facts?.count ?? 0} items. Arrow keys move, plus and minus zoom, Enter searches from the marked item."></canvas>
      ${!facts && html`<p class="waiting over" role="status">The map is being drawn …</p>`}
      <div class="map-tools" role="toolbar" aria-label="Map tools">
        <button aria-label="Zoom in" onClick=${() => scatter.current?.zoomBy(1.5)}>+</button>
        <button aria-label="Zoom out" onClick=${() => scatter.current?.zoomBy(1 / 1.5)}>−</button>
        <button aria-label="Show all" onClick=${() => scatter.current?.reset()}>⤢</button>
        <button aria-label="Lasso" aria-pressed=${lasso} title="Draw around points (or hold Shift)" onClick=${toggle}>◌ Lasso</button>
      </div>
      ${facts && html`<p class="map-facts">${facts.count.toLocaleString("en")} of ${(about.value?.items ?? facts.count).toLocaleString("en")} items · ${facts.labelNames.length} classes · ${facts.method}</p>`}
      ${hint && html`<div class="hint" style=${{ left: `${hint.x}px`, top: `${hint.y}px` }}>
        ${picture(hint.item, 160) && html`<img src=${picture(hint.item, 160)} alt="" />`}<span>${hint.item.label ?? hint.item.id}</span></div>`}
    </div>
    ${facts && html`<${Legend} names=${facts.labelNames} classes=${facts.classes} marked=${marked} slots=${slots} text=${text} dark=${dark} onText=${mark} />`}
    ${rows.length > 0 && html`<${Lassoed} key=${rows.join()} rows=${rows} labels=${facts.labels} names=${facts.labelNames} load=${itemsOf} onClear=${() => mark("")} />`}
  </section>`;
}
