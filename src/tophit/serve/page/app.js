// The page: what is asked on the left, what was found on the right; drop, paste and keys work everywhere.
import { render } from "preact";
import { useState } from "preact/hooks";
import { effect } from "@preact/signals";
import { html, breakable } from "./html.js";
import { picture } from "./api.js";
import { Comparison } from "./compare.js";
import { Crop } from "./crop.js";
import { Details, openDetails } from "./details.js";
import { Facets } from "./facets.js";
import { Download } from "./download.js";
import { Filters } from "./filters.js";
import { Grid } from "./grid.js";
import { Picture } from "./picture.js";
import { Doubt, LeastChance, Nothing, percent } from "./chances.js";
import { GroupBy } from "./groups.js";
import { EmbeddingMap } from "./map.js";
import * as state from "./state.js";
import { Words } from "./words.js";
import { Worst } from "./worst.js";

const { about, answer, busy, change, hasQuery, needsToken, notice, sample, search } = state;
const RERANKINGS = { "": "as found", "alpha-qe": "query expansion", "k-reciprocal": "k-reciprocal" };
const wide = matchMedia("(min-width: 821px)"); // on a phone the options wait behind a line
const VIEWS = { search: "Search", map: "Map", worst: "Worst queries" };

function Header() {
  const facts = about.value;
  return html`<header>
    <a class="brand" href="/" onClick=${(event) => { event.preventDefault(); state.startOver(); }}>
      <img src="/page/icon.svg" alt="" width="28" height="28" /><span>Tophit</span></a>
    <nav aria-label="Views">
      ${Object.entries(VIEWS).map(([view, name]) => html`<a href=${state.address({ ...search.value, view })}
        aria-current=${search.value.view === view ? "page" : null}
        onClick=${(event) => { event.preventDefault(); change({ view }); }}>${name}</a>`)}
    </nav>
    ${facts && html`<p class="served" title="model ${facts.model}, index ${facts.index}"><b>${facts.name}</b> ${facts.items.toLocaleString("en")} items</p>`}
  </header>`;
}

function pick(event) {
  const files = [...event.target.files];
  event.target.value = "";
  if (files.length) state.searchFiles(files);
}

/** The picture or pictures that ask, and what steers. */
function Query() {
  const [large, setLarge] = useState(false); // on a phone the picture is small until somebody wants to draw on it
  const { id, uploads, box, like, unlike } = search.value;
  const asked = answer.value ? (answer.value.queries?.[0].query ?? answer.value.query) : null;
  const own = asked && (asked.of ? asked.of : [asked]);
  const shown = own?.find((one) => (id ? one.id === id : uploads.includes(one.upload)));
  const items = new Map((own ?? []).concat(asked?.against ?? []).filter((one) => one.id).map((one) => [one.id, one]));
  const source = uploads.length ? `/uploads/${uploads[0]}` : shown && picture(shown, 1024);
  return html`<section class="query" aria-label="Query">
    ${(id || uploads.length > 0) && html`<div class="asked ${large ? "large" : ""}">
      ${uploads.length > 1
        ? html`<div class="several">${uploads.map((name) => html`<img src="/uploads/${name}" alt="A query picture" />`)}</div>`
        : (source || busy.value) && html`<${Crop} source=${source} box=${box}
            name=${uploads.length ? "Your picture" : (shown?.label ?? id)} onBox=${(made) => change({ box: made })} />`}
      <div class="asked-text">
        <p class="asked-name" title=${id || "Your picture"}>${uploads.length ? "Your picture" : html`${shown?.label && html`<b>${breakable(shown.label)}</b><br />`}<span class="muted">${breakable(id)}</span>`}</p>
        <p class="muted small">${box ? html`Searching by the box. <button class="link" onClick=${() => change({ box: null })}>Use the whole picture</button>`
          : uploads.length > 1 ? "All pictures together are one query." : source ? "Draw a box on the picture to search by a part of it." : ""}</p>
        <p class="asked-actions">${shown?.id && html`<button class="link" onClick=${() => openDetails([shown], shown)}>Details</button>`}
          ${uploads.length < 2 && source && html`<button class="link enlarge" aria-pressed=${large} onClick=${() => setLarge(!large)}>${large ? "Smaller" : "Enlarge"}</button>`}
          <button class="link" onClick=${state.startOver}>Start over</button></p>
      </div>
    </div>`}
    <${Words} />
    <label class="drop ${hasQuery(search.value) ? "slim" : ""}">
      <input type="file" accept="image/*,.heic,.heif,.avif" multiple onChange=${pick} id="pick" />
      <strong>${!hasQuery(search.value) ? "Drop a picture here" : id || uploads.length ? "Another picture" : "Add a picture"}</strong>
      <span class="muted">or paste it, or click to choose one</span>
    </label>
    <details class="more" open=${wide.matches}><summary>Filters and options</summary>
    <${Facets} />
    <${Filters} />
    <div class="options">
      <label>Results <input id="k" type="number" min="1" max=${about.value?.limits.k ?? 1000} value=${search.value.k}
        onChange=${(event) => change({ k: Math.max(1, Number.parseInt(event.target.value, 10) || 24) })} /></label>
      <label>Order <select id="rerank" value=${search.value.rerank} onChange=${(event) => change({ rerank: event.target.value })}>
        ${Object.entries(RERANKINGS).map(([name, words]) => html`<option value=${name}>${words}</option>`)}</select></label>
      <${GroupBy} />
      <${LeastChance} />
      ${about.value?.against && html`<label class="switch"><input id="compare" type="checkbox" checked=${search.value.compare}
        onChange=${(event) => change({ compare: event.target.checked })} /> <span>Compare with ${about.value.against}</span></label>`}
    </div></details>
    ${(like.length > 0 || unlike.length > 0) && html`<div class="steering" aria-label="Steering">
      ${[["like", like, "More like"], ["unlike", unlike, "Less like"]].filter(([, some]) => some.length).map(([side, some, words]) => html`
        <h3>${words}</h3><ul class="examples ${side}">${some.map((name) => html`<li key=${name}>
          <${Picture} item=${items.get(name) ?? { id: name, label: name }} size=${160} />
          <button aria-label="Remove ${items.get(name)?.label ?? name}" onClick=${() => state.steer(side, name)}>×</button></li>`)}</ul>`)}
      ${!id && !uploads.length && html`<button class="link" onClick=${state.startOver}>Start over</button>`}
    </div>`}
  </section>`;
}

/** What words add to the heading. */
const told = ({ text, id, uploads }) => (text ? ` to ${id || uploads.length ? "the picture and " : ""}“${text}”` : "");

/** What was found, in a line. */
function heading(found) {
  if (found.second) return "Two models, one query";
  const { results, stopped_at } = found.queries[0];
  const { group, least } = search.value;
  const nearest = stopped_at !== undefined ? `The nearest ${results.length} by ${group}` : `${results.length} nearest${told(search.value)}`;
  return state.tellsChances(search.value) && least ? `${nearest}, ${percent(least)} likely or more` : nearest;
}

function Found() {
  const found = answer.value;
  if (!hasQuery(search.value)) {
    return html`<div class="found"><h1>Search by ${about.value?.words ? "words or a picture" : "a picture"}</h1>
      <p class="muted">${about.value?.words ? "Describe what you look for, drop or paste a picture" : "Drop, paste or choose one"}, or start from one of these.</p>
      <${Grid} items=${sample.value} label="Some items of the index" /></div>`;
  }
  if (!found && !busy.value && notice.value.error) return html`<div class="found"><h1>Nothing to show</h1>
    <p class="muted">${notice.value.text} <button class="link" onClick=${state.startOver}>Start over</button></p></div>`;
  if (!found) return html`<div class="found"><p class="waiting" role="status">${busy.value ? "Searching …" : ""}</p></div>`;
  const times = Object.entries(found.times).filter(([, ms]) => ms >= 0.05).map(([name, ms]) => `${name.replace("_ms", "")} ${ms.toFixed(1)} ms`);
  const asked = found.queries?.[0].query;
  const results = found.queries?.[0].results;
  const early = found.queries?.[0].stopped_at;
  if (found.queries?.[0].reason) return html`<div class="found ${busy.value ? "busy" : ""}"><${Nothing} found=${found.queries[0]} /></div>`;
  return html`<div class="found ${busy.value ? "busy" : ""}">
    <div class="found-head"><h1>${heading(found)}</h1>
      <p class="muted small" id="times">${times.join(" · ")}</p><${Download} results=${results} /></div>
    ${early && html`<p class="muted small">Only the nearest ${early.toLocaleString("en")} pictures were looked at; there may be more farther away.</p>`}
    ${found.second ? html`<${Comparison} found=${found} />`
      : results.length ? html`<${Doubt} results=${results} /><${Grid} items=${results} steerable wanted=${asked.kind === "item" && !search.value.box && !search.value.text ? asked.label : null} label="Results" />`
      : html`<p class="waiting">Nothing found. A filter may be too narrow.</p>`}
  </div>`;
}

function TokenDialog() {
  if (!needsToken.value) return null;
  const give = async (event) => {
    event.preventDefault();
    try {
      await state.giveToken(String(new FormData(event.target).get("token")).trim());
    } catch (error) {
      notice.value = { text: error.message, error: true };
    }
  };
  return html`<div class="veil"><form class="dialog" role="dialog" aria-label="Token" onSubmit=${give}>
    <h2>This server needs a token</h2><input name="token" type="password" autocomplete="off" aria-label="Token" autofocus />
    <button class="primary">Continue</button></form></div>`;
}

function App() {
  const view = search.value.view;
  return html`<a class="skip" href="#main">Skip to the results</a>
    <${Header} />
    ${view === "search" ? html`<div class="columns"><${Query} /><main id="main" tabindex="-1"><${Found} /></main></div>`
      : html`<main id="main" class="whole" tabindex="-1">${view === "map" ? html`<${EmbeddingMap} />` : html`<${Worst} />`}</main>`}
    <p class="notice ${notice.value.error ? "error" : ""}" role=${notice.value.error ? "alert" : "status"} aria-live="polite">
      <span>${notice.value.text}</span>${notice.value.error && html`<button aria-label="Close" onClick=${() => state.say("")}>×</button>`}</p>
    <div class="dropping" aria-hidden="true">Drop to search</div>
    <${Details} />
    <${TokenDialog} />`;
}

function onDrop(event) {
  event.preventDefault();
  document.body.classList.remove("is-dropping");
  const files = [...(event.dataTransfer?.files ?? [])];
  if (files.length) state.searchFiles(files);
}

function onPaste(event) {
  const files = [...(event.clipboardData?.files ?? [])];
  if (!files.length) return;
  event.preventDefault();
  state.searchFiles(files);
}

function onKey(event) {
  const typing = event.target.closest?.("input, select, textarea");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "u") document.getElementById("pick")?.click();
  if (event.key === "/") {
    event.preventDefault();
    document.getElementById("filter-field")?.focus();
  }
  const views = { 1: "search", 2: "map", 3: "worst" };
  if (event.key in views) change({ view: views[event.key] });
}

document.addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("is-dropping");
});
document.addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) document.body.classList.remove("is-dropping");
});
document.addEventListener("drop", onDrop);
document.addEventListener("paste", onPaste);
document.addEventListener("keydown", onKey);
addEventListener("popstate", () => (search.value = state.readAddress()));

effect(() => {
  if (search.value && about.value) state.runSearch();
});
render(html`<${App} />`, document.getElementById("app"));
state.begin();
