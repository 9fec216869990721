// The worst queries: what each found instead of its own label, and which labels are confused.
import { html, breakable } from "./html.js";
import { useEffect, useState } from "preact/hooks";
import { getWhenReady } from "./api.js";
import { Mark } from "./grid.js";
import { Picture } from "./picture.js";
import { fail, say, search, searchFrom } from "./state.js";

const percent = (value) => `${(100 * value).toFixed(1)}%`;

export function Worst() {
  const [found, setFound] = useState(null);
  const [label, setLabel] = useState("");
  useEffect(() => {
    getWhenReady("/worst", () => search.value.view === "worst").then((made) => {
      setFound(made);
      say(`${made.queries.length} worst queries of ${made.tried}.`);
    }, fail);
  }, []);
  if (!found || found.state !== "ready") return html`<p class="waiting" role="status">Looking for the worst queries …</p>`;
  if (!found.queries.length) return html`<p class="waiting">The items have no labels, so results can't be judged.</p>`;
  const shown = found.queries.filter((one) => !label || one.query.label === label);
  return html`<section class="worst" aria-label="Worst queries">
    <div class="facts-row">
      ${["recall@1", "precision@5", "mAP", "MAP@R"].filter((name) => name in found.metrics).map((name) => html`<div class="fact">
        <b>${percent(found.metrics[name])}</b><span>${name}</span></div>`)}
      <div class="fact wide"><b>${found.tried.toLocaleString("en")}</b><span>queries${found.unseen ? " of classes that were not learned" : ""}, each against all items</span></div>
    </div>
    <div class="two-columns">
      <ol class="worst-list" aria-label="Queries, worst first">
        ${shown.map((one) => html`<li key=${one.query.id}>
          <button class="open query" aria-label="Search from ${one.query.label}" onClick=${() => searchFrom(one.query.id)}><${Picture} item=${one.query} size=${160} /></button>
          <div class="story">
            <p><b>${breakable(one.query.label)}</b> <span class="muted">first right at rank ${one.first_right_rank} · average precision ${percent(one.value)}</span></p>
            <ol class="strip" aria-label="What ${one.query.label} found">
              ${one.results.map((hit) => html`<li key=${hit.id} class=${hit.correct ? "right" : "wrong"}>
                <button class="open" title="${hit.label} · ${hit.score.toFixed(3)}" aria-label="Rank ${hit.rank}, ${hit.label}, ${hit.correct ? "right" : "wrong"}. Search from it"
                  onClick=${() => searchFrom(hit.id)}><${Picture} item=${hit} size=${160} /><${Mark} word=${hit.correct ? "right" : "wrong"} /></button>
              </li>`)}
            </ol>
          </div>
        </li>`)}
        ${!shown.length && html`<p class="muted">None of the worst queries is of ${label}.</p>`}
      </ol>
      <aside aria-label="Confusions">
        <h3>Often confused</h3>
        <ul class="confusions">
          ${found.confusions.map((one) => html`<li key=${`${one.label} ${one.taken_for}`}>
            <button class="plain" aria-pressed=${label === one.label} onClick=${() => setLabel(label === one.label ? "" : one.label)}>
              <span>${breakable(one.label)} <span aria-label="is confused with">→</span> ${breakable(one.taken_for)}</span> <b>${one.queries}</b>
            </button></li>`)}
        </ul>
      </aside>
    </div>
  </section>`;
}
