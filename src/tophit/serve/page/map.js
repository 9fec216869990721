// The map of the index: names of classes, a search for them, hover to see an item, click to search from it, a lasso.
import { html } from "./html.js";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, getBinary, getWhenReady, picture } from "./api.js";
import { chooseColoured, classesOf, MOST_COLOURED, slotsOf } from "./colours.js";
import { classesLike, ClassSearch, hintPlace, Legend, useDarkMode } from "./legend.js";
import { Lassoed, nearestFirst } from "./lassoed.js";
import { levelsOf } from "./facets.js";
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
  return { ...made, labelNames: made.labels, points, labels: new Uint16Array(data, 8 * made.count, made.count) };
}

/** The classes of the points, or in a hierarchy the branches of a level above them, 1 for the coarsest; 0: classes. */
function colouring({ points, labels, labelNames }, level) {
  let [numbers, names] = [labels, labelNames];
  if (level > 0) {
    const branch = labelNames.map((name) => name.split("/").slice(0, level).join("/"));
    names = [...new Set(branch)];
    const places = new Map(names.map((name, place) => [name, place]));
    numbers = labels.map((label) => places.get(branch[label]) ?? label);
  }
  const classes = classesOf(points, numbers);
  return { numbers, names, classes, coloured: chooseColoured(classes) };
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
  const [level, setLevel] = useState(0);
  const dark = useDarkMode();
  const levels = Math.max(0, levelsOf(about.value?.fields ?? []).length - 1);
  const shown = useMemo(() => facts && colouring(facts, level), [facts, level]);
  const many = level ? "branches" : "classes";
  const marked = useMemo(() => (shown ? classesLike(shown.names, text) : []), [shown, text]);
  const slots = useMemo(() => slotsOf(marked.length ? marked : (shown?.coloured ?? [])), [shown, marked]);

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
    load(() => left).then((made) => !left && made && setFacts(made)).catch(fail);
    return () => (left = true);
  }, []);
  useEffect(() => {
    if (!shown) return undefined;
    const onLasso = (inside) => {
      setText("");
      setRows(nearestFirst(inside, facts.points));
      say(`${inside.length} items are inside.`);
    };
    scatter.current = createScatter(canvas.current, facts.points, shown.numbers, { onHover, onClick, onLasso }, shown.names);
    window.tophitMap = scatter.current; // for tests, which look where a point is
    return () => scatter.current?.destroy();
  }, [shown]);
  useEffect(() => scatter.current?.paint(slots), [shown, slots]);
  useEffect(() => {
    const of = new Set(marked.length ? marked : rows.map((row) => shown.numbers[row]));
    const inside = marked.length ? [...shown.numbers.keys()].filter((row) => of.has(shown.numbers[row])) : rows;
    scatter.current?.select(inside);
    scatter.current?.name(of.size ? of : null);
  }, [shown, marked, rows]);

  const toggle = () => {
    scatter.current?.setLasso(!lasso);
    setLasso(!lasso);
  };
  const recolour = (event) => {
    mark("");
    setLasso(false);
    setLevel(Number(event.target.value));
  };
  return html`<section class="map" aria-label="Map of the index" onKeyDown=${(event) => event.key === "Escape" && mark("")}>
    ${shown && html`<div class="map-bar">
      ${levels > 0 && html`<label>Colour by <select id="colour-by" value=${String(level)} onChange=${recolour}>
        ${[...Array(levels).keys()].map((number) => html`<option key=${number} value=${String(number + 1)}>level ${number + 1}</option>`)}<option value="0">class</option></select></label>`}
      <${ClassSearch} names=${shown.names} text=${text} onText=${mark} what=${level ? "branch" : "class"} />
      <span class="muted small" role="status">${marked.length ? `${marked.length} of ${shown.names.length} ${many} marked${marked.length > MOST_COLOURED ? `, the first ${MOST_COLOURED} in colour` : ""}` : text.trim() ? `no such ${level ? "branch" : "class"}` : ""}</span>
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
      ${hint && html`<div ...${hintPlace(hint.x, hint.y)}>
        ${picture(hint.item, 160) && html`<img src=${picture(hint.item, 160)} alt="" />`}<span>${hint.item.label ?? hint.item.id}</span></div>`}
    </div>
    ${shown && html`<${Legend} names=${shown.names} classes=${shown.classes} marked=${marked} slots=${slots} text=${text} dark=${dark} onText=${mark} many=${many} />`}
    ${rows.length > 0 && html`<${Lassoed} key=${rows.join()} rows=${rows} labels=${shown.numbers} names=${shown.names} load=${itemsOf} onClear=${() => mark("")} />`}
  </section>`;
}
