// The list of the worst queries: sort, filter, open one; arrow keys move through them, Escape closes.
import { html, breakable } from "./html.js";
import { useEffect, useRef, useState } from "preact/hooks";
import { content, count, labelOf, opened, percent, plural, points } from "./data.js";
import { GalleryRow, Picture } from "./cells.js";
import { Detail } from "./detail.js";
import { Part } from "./part.js";

const PRINTED = 12;
const two = content.models.length > 1;
const held = [...new Set([...content.worst, ...(content.turned?.most_won ?? []), ...(content.turned?.most_lost ?? [])])];

const precision = (query) => query.sides[0].precision ?? 2;
const firstRank = (query) => query.sides[0].first ?? Infinity;
export const change = (query) => query.sides[0].precision - query.sides[1].precision;
const pair = (query) => [labelOf(query.picture), query.sides[0].wrong ?? ""];
const SORTS = {
  precision: ["average precision, worst first", (a, b) => precision(a) - precision(b)],
  first: ["rank of the first right result, highest first", (a, b) => firstRank(b) - firstRank(a) || precision(a) - precision(b)],
  pair: ["class pair", (a, b) => pair(a)[0].localeCompare(pair(b)[0]) || pair(a)[1].localeCompare(pair(b)[1]) || precision(a) - precision(b)],
  ...(two && { lost: ["change, largest loss first", (a, b) => change(a) - change(b)], won: ["change, largest gain first", (a, b) => change(b) - change(a)] }),
};

/** The places of the queries to list: those whose class, or the class found instead, contains the text. */
function listed(sort, text) {
  const wanted = text.trim().toLowerCase();
  const found = held.filter((place) => !wanted || pair(content.queries[place]).some((name) => name.toLowerCase().includes(wanted)));
  return found.sort((a, b) => SORTS[sort][1](content.queries[a], content.queries[b]) || a - b);
}

function Row({ place, current }) {
  const query = content.queries[place];
  const side = query.sides[0];
  return html`<li><button class="query-row" data-place=${place} aria-current=${current ? "true" : null} tabindex=${current ? 0 : -1} onClick=${() => (opened.value = place)}>
    <${Picture} number=${query.picture} lazy=${true} />
    <span class="what"><span class="name">${breakable(labelOf(query.picture))}</span>
      <span class="muted name">${side.wrong ? html`<span aria-label="found">→</span> ${breakable(side.wrong)}` : "all right"}</span></span>
    <span class="values"><b>${percent(side.precision)}</b><span class="muted">first at ${side.first == null ? "–" : count(side.first)}</span></span>
    ${two && html`<span class="badge ${change(query) > 0 ? "up" : change(query) < 0 ? "down" : ""}">${points(change(query))}</span>`}
  </button></li>`;
}

export function Queries() {
  const [sort, setSort] = useState("precision");
  const [text, setText] = useState("");
  const list = useRef(null);
  const places = listed(sort, text);
  const current = opened.value;
  const inTurn = places.includes(current) ? current : places[0];

  useEffect(() => {
    if (opened.value === null && matchMedia("(min-width: 821px)").matches) opened.value = places[0] ?? null;
  }, []);

  function go(place) {
    opened.value = place;
    const row = list.current?.querySelector(`[data-place="${place}"]`);
    row?.scrollIntoView({ block: "nearest" });
    row?.focus({ preventScroll: true });
  }
  function onKey(event) {
    if (event.target.closest("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && opened.value !== null) {
      const last = opened.value;
      opened.value = null;
      list.current?.querySelector(`[data-place="${last}"]`)?.focus();
      return;
    }
    const at = places.indexOf(opened.value);
    const steps = { ArrowDown: at + 1, ArrowRight: at + 1, ArrowUp: Math.max(0, at - 1), ArrowLeft: Math.max(0, at - 1), Home: 0, End: places.length - 1 };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const next = places[steps[event.key]];
    if (next !== undefined) go(next);
  }
  /** Filter the list; an open query that is no longer listed closes. */
  function filter(wanted) {
    setText(wanted);
    if (wanted.trim() && !listed(sort, wanted).includes(opened.value)) opened.value = null;
  }
  const hardest = content.worst.length;
  const { queries, skipped } = content.counts;
  const all = hardest === queries - skipped;
  return html`<${Part} id="queries" title="The worst queries" onKeyDown=${onKey} brief="${plural(held.length, "query", "queries")}: what each found instead">
    <p class="lead">${all ? `All ${plural(hardest, "query", "queries")}${skipped ? " with a right answer" : ""}, lowest average precision first` : `The ${plural(hardest, "query", "queries")} with the lowest average precision of ${count(queries)}`}${two && !all ? `, and those that changed most against ${content.models[1]}` : ""}.
      <span class="screen"> The arrow (→) points to the class of the nearest wrong result; “all right” means that no listed result is wrong. Arrow keys move through the list, Escape closes a query.</span></p>
    <div class="controls" role="search" aria-label="Queries">
      <label>Sort by <select value=${sort} onChange=${(event) => setSort(event.target.value)}>
        ${Object.entries(SORTS).map(([name, [words]]) => html`<option key=${name} value=${name}>${words}</option>`)}</select></label>
      <label>Class of the query or of the wrong result <input type="search" value=${text} placeholder="part of the name" onInput=${(event) => filter(event.target.value)} /></label>
      <span class="muted small" role="status">${places.length === held.length ? `${count(held.length)} listed` : `${count(places.length)} of ${count(held.length)}`}</span>
    </div>
    <div class="browser">
      <ol class="query-list" ref=${list} aria-label="Queries">${places.map((place) => html`<${Row} key=${place} place=${place} current=${place === inTurn} />`)}
        ${!places.length && html`<li class="muted empty">No listed query has such a class.</li>`}</ol>
      ${current === null
        ? html`<div class="detail closed"><p class="muted">Choose a query to see its results.</p></div>`
        : html`<${Detail} key=${current} query=${content.queries[current]} close=${() => onKey({ key: "Escape", target: list.current })} />`}
    </div>
    <ul class="print-only">${content.worst.slice(0, PRINTED).map((place) => {
      const query = content.queries[place];
      return html`<${GalleryRow} key=${place} query=${query} place=${place} facts="AP ${percent(query.sides[0].precision)}" />`;
    })}</ul>
  <//>`;
}
