// Two models on one query: both rankings, and a line from each item's old place to its new one.
import { kind, sign, words } from "./changes.js";
import { html } from "./html.js";
import { Picture } from "./grid.js";
import { searchFrom } from "./state.js";

const ROW = 76; // pixels, as in style.css

function Row({ hit, badge, style, wanted }) {
  const name = hit.label ?? hit.id;
  const mark = wanted == null || hit.label == null ? "" : hit.label === wanted ? "right" : "wrong";
  return html`<li class="ranked ${style} ${mark}" data-id=${hit.id}>
    <button class="open" aria-label="Rank ${hit.rank}, ${name}, ${badge}. Search from it" onClick=${() => searchFrom(hit.id)}>
      <span class="rank">${hit.rank}</span>
      <${Picture} item=${hit} size=${160} />
      <span class="what"><span class="name">${name}</span><span class="score">${hit.score.toFixed(3)}</span></span>
      <span class="badge ${style}">${sign[style]}${badge}</span>
    </button>
  </li>`;
}

/** @param {{found: any}} props  the answer of /compare */
export function Comparison({ found }) {
  const { first, second, changes, lost, shared } = found;
  const wanted = found.query.label ?? null;
  const later = new Map(second.results.map((hit) => [hit.id, hit.rank]));
  const rows = Math.max(first.results.length, second.results.length);
  const counts = { up: 0, down: 0, new: 0, same: 0 };
  for (const change of Object.values(changes)) counts[kind(change)] += 1;
  const right = (results) => results.filter((hit) => wanted != null && hit.label === wanted).length;
  return html`<section class="comparison" aria-label="Two models side by side">
    <p class="facts">
      ${shared} of ${second.results.length} in common <span class="badge up">▲ ${counts.up} up</span>
      <span class="badge down">▼ ${counts.down} down</span> <span class="badge new">✦ ${counts.new} new</span>
      <span class="badge lost">✕ ${lost.length} lost</span>
      ${wanted != null && html`<span class="muted">of the query's label: ${right(first.results)} in ${first.name}, ${right(second.results)} in ${second.name}</span>`}
    </p>
    <div class="rankings">
      <div><h3>${first.name}</h3>
        <ol aria-label="Results of ${first.name}">${first.results.map((hit) => {
          const gone = lost.includes(hit.id);
          return html`<${Row} key=${hit.id} hit=${hit} wanted=${wanted} style=${gone ? "lost" : kind(changes[hit.id])}
            badge=${gone ? "lost" : `to ${later.get(hit.id)}`} />`;
        })}</ol>
      </div>
      <svg class="lines" viewBox="0 0 100 ${rows * ROW}" preserveAspectRatio="none" height=${rows * ROW} aria-hidden="true">
        ${first.results.filter((hit) => later.has(hit.id)).map((hit) => {
          const [from, to] = [hit.rank, later.get(hit.id)].map((rank) => (rank - 0.5) * ROW);
          return html`<path key=${hit.id} class=${kind(changes[hit.id])} d="M0 ${from} C50 ${from} 50 ${to} 100 ${to}" />`;
        })}
      </svg>
      <div><h3>${second.name}</h3>
        <ol aria-label="Results of ${second.name}">${second.results.map((hit) => html`<${Row} key=${hit.id} hit=${hit} wanted=${wanted}
          style=${kind(changes[hit.id])} badge=${words(changes[hit.id])} />`)}</ol>
      </div>
    </div>
  </section>`;
}
