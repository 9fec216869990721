// The map of the index: hover to see an item, click to search from it, draw around some to see them together.
import { html } from "./html.js";
import { useEffect, useRef, useState } from "preact/hooks";
import { get, getBinary, getWhenReady, picture } from "./api.js";
import { Grid } from "./grid.js";
import { createScatter } from "./scatter.js";
import { about, change, fail, say, searchFrom } from "./state.js";

const MOST_SHOWN = 60;
const MOST_TOGETHER = 16;
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

export function EmbeddingMap() {
  const canvas = useRef(null);
  const scatter = useRef(null);
  const wanted = useRef(-1);
  const [facts, setFacts] = useState(null);
  const [lasso, setLasso] = useState(false);
  const [hint, setHint] = useState(null);
  const [chosen, setChosen] = useState({ rows: [], items: [] });

  async function onHover(row, x, y) {
    wanted.current = row;
    if (row < 0) return setHint(null);
    const [item] = await itemsOf([row]).catch(() => []);
    if (wanted.current === row && item) setHint({ item, x, y });
  }
  const onClick = (row) => itemsOf([row]).then(([item]) => item && searchFrom(item.id), fail);
  async function onLasso(rows) {
    try {
      setChosen({ rows, items: await itemsOf(rows.slice(0, MOST_SHOWN)) });
      say(`${rows.length} items are inside.`);
    } catch (error) {
      fail(error);
    }
  }

  useEffect(() => {
    let gone = false;
    (async () => {
      const made = await getWhenReady("/map", () => !gone);
      if (gone) return;
      known.clear();
      drawn = made.map;
      const data = await getBinary(`/map/points?map=${drawn}`);
      if (gone) return;
      setFacts(made);
      const points = new Float32Array(data, 0, 2 * made.count);
      const labels = new Uint16Array(data, 8 * made.count, made.count);
      scatter.current = createScatter(canvas.current, points, labels, { onHover, onClick, onLasso });
      window.tophitMap = scatter.current; // for tests, which look where a point is
    })().catch(fail);
    return () => {
      gone = true;
      scatter.current?.destroy();
    };
  }, []);

  const toggle = () => {
    scatter.current?.setLasso(!lasso);
    setLasso(!lasso);
  };
  const together = () => {
    const like = chosen.items.slice(0, MOST_TOGETHER).map((item) => item.id);
    change({ view: "search", id: "", uploads: [], box: null, like, unlike: [] });
  };
  const clear = () => {
    scatter.current?.select([]);
    setChosen({ rows: [], items: [] });
  };
  return html`<section class="map" aria-label="Map of the index">
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
      ${facts && html`<p class="map-facts">${facts.count.toLocaleString("en")} of ${(about.value?.items ?? facts.count).toLocaleString("en")} items · ${facts.labels.length} labels · ${facts.method}</p>`}
      ${hint && html`<div class="hint" style=${{ left: `${hint.x}px`, top: `${hint.y}px` }}>
        ${picture(hint.item, 160) && html`<img src=${picture(hint.item, 160)} alt="" />`}<span>${hint.item.label ?? hint.item.id}</span></div>`}
    </div>
    ${chosen.rows.length > 0 && html`<div class="chosen">
      <h2>${chosen.rows.length} inside <button class="plain" onClick=${together}>More like ${chosen.rows.length > MOST_TOGETHER ? `the first ${MOST_TOGETHER}` : "these"}</button>
        <button class="plain" onClick=${clear}>Clear</button></h2>
      <${Grid} items=${chosen.items} label="Items inside the lasso" />
    </div>`}
  </section>`;
}
