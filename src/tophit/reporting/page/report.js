// The report: its parts from the verdict to the recipe, and what printing changes.
import { render } from "preact";
import { html } from "./html.js";
import "@preact/signals"; // components follow the signals that they read
import { content, hasPictures } from "./data.js";
import { Chances, Drawings, Hero, Metrics } from "./overview.js";
import { Galleries, Pairs, WonAndLost } from "./galleries.js";
import { EmbeddingMap } from "./map.js";
import { openPart } from "./part.js";
import { Queries } from "./queries.js";
import { Centres, Problems, Recipe } from "./more.js";

const PARTS = [
  ["metrics", "Metrics"],
  ["curves", "Curves", content.drawings?.length],
  ["chances", "Chances", content.chances],
  ["galleries", "Galleries"],
  ["confused", "Confused"],
  ["won", "Better and worse", content.turned],
  ["map", "Map"],
  ["queries", "Worst"],
  ["labels", "Labels", content.problems],
  ["centres", "Centres", content.centres],
  ["recipe", "Recipe"],
].filter(([, , ...there]) => there.every(Boolean));

function Report() {
  return html`<a class="skip" href="#metrics" onClick=${() => openPart("metrics")}>To the metrics</a>
    <header class="report-bar"><a class="brand" href="#report"><svg viewBox="0 0 32 32" width="26" height="26" aria-hidden="true"><rect width="32" height="32" rx="8" fill="#4f46e5"/><rect x="7" y="7" width="8" height="8" rx="2" fill="#fff"/><rect x="17" y="7" width="8" height="8" rx="2" fill="#fff" opacity=".55"/><rect x="7" y="17" width="8" height="8" rx="2" fill="#fff" opacity=".55"/><circle cx="20.5" cy="20.5" r="3.6" fill="none" stroke="#fff" stroke-width="2"/><path d="m23.3 23.3 2.6 2.6" stroke="#fff" stroke-width="2" stroke-linecap="round"/></svg><span>Tophit</span></a>
      <nav aria-label="Parts of the report">${PARTS.map(([id, name]) => html`<a key=${id} href="#${id}" onClick=${() => openPart(id)}>${name}</a>`)}</nav></header>
    <main class="report" tabindex="-1">
      <${Hero} /><${Metrics} /><${Drawings} /><${Chances} /><${Galleries} /><${Pairs} /><${WonAndLost} /><${EmbeddingMap} /><${Queries} /><${Problems} /><${Centres} /><${Recipe} />
    </main>`;
}

document.getElementById("report").classList.toggle("without-pictures", !hasPictures);
render(html`<${Report} />`, document.getElementById("report"));

if (location.hash) openPart(decodeURIComponent(location.hash.slice(1)));

// Nothing can be opened on paper, so everything is open.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")];
  for (const one of folded) one.open = true;
});
addEventListener("afterprint", () => {
  for (const one of folded) one.open = false;
});
document.documentElement.dataset.ready = "1"; // for tests
