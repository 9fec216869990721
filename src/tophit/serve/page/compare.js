// Two models on one query: what the other model found on the left, what the served one finds on the right, as in the
// report; a line leads from each item's place there to its place here.
import { kind, sign, words } from "./changes.js";
import { html, breakable } from "./html.js";
import { judged, Mark } from "./grid.js";
import { Picture } from "./picture.js";
import { searchFrom } from "./state.js";

const ROW = 84; // pixels, as in style.css

function Row({ hit, badge, style, wanted }) {
  const name = hit.label ?? hit.id;
  const word = judged(hit, wanted);
  return html`<li class="ranked ${style} ${word}" data-id=${hit.id}>
    <button class="open" title="${name}\n${hit.id}" aria-label="Rank ${hit.rank}, ${name}, ${word && `${word}, `}${badge}. Search from it" onClick=${() => searchFrom(hit.id)}>
      <span class="rank">${hit.rank}</span>
      <span class="small-picture"><${Picture} item=${hit} size=${160} /><${Mark} word=${word} /></span>
      <span class="what"><span class="name">${breakable(name)}</span><span class="score">${hit.score.toFixed(3)}</span></span>
      <span class="badge ${style}">${sign[style]}${badge}</span>
    </button>
  </li>`;
}

function Side({ side, role, wanted, children }) {
  const right = side.results.filter((hit) => hit.label === wanted).length;
  return html`<div><h3 title=${side.name}><b>${side.name}</b> <span class="role">${role}</span></h3>
    <p class="side-facts">${wanted == null ? "" : html`<span class="mark right">✓</span> <b>${right}</b> of ${side.results.length} right`}</p>
    <ol aria-label="Results of ${side.name}">${children}</ol></div>`;
}

/** @param {{found: any}} props  the answer of /compare: "first" is the served model, "second" the one of --against */
export function Comparison({ found }) {
  const { first: here, second: there, changes, lost, shared } = found;
  const wanted = found.query.label ?? null;
  const place = new Map(here.results.map((hit) => [hit.id, hit.rank]));
  const rows = Math.max(here.results.length, there.results.length);
  const counts = { up: 0, down: 0, new: 0, same: 0 };
  for (const change of Object.values(changes)) counts[kind(change)] += 1;
  return html`<section class="comparison" aria-label="Two models side by side">
    <p class="facts">
      From ${there.name} to ${here.name}: ${shared} of ${here.results.length} in common <span class="badge up">▲ ${counts.up} up</span>
      <span class="badge down">▼ ${counts.down} down</span> <span class="badge new">✦ ${counts.new} new</span>
      <span class="badge lost">✕ ${lost.length} lost</span>
      ${wanted == null && html`<span class="muted">The query has no label, so results are not marked right or wrong.</span>`}
    </p>
    <div class="rankings">
      <${Side} side=${there} role="compared with" wanted=${wanted}>${there.results.map((hit) => {
        const gone = lost.includes(hit.id);
        return html`<${Row} key=${hit.id} hit=${hit} wanted=${wanted} style=${gone ? "lost" : kind(changes[hit.id])}
          badge=${gone ? "lost" : `to ${place.get(hit.id)}`} />`;
      })}<//>
      <svg class="lines" viewBox="0 0 100 ${rows * ROW}" preserveAspectRatio="none" height=${rows * ROW} aria-hidden="true">
        ${there.results.filter((hit) => place.has(hit.id)).map((hit) => {
          const [from, to] = [hit.rank, place.get(hit.id)].map((rank) => (rank - 0.5) * ROW);
          return html`<path key=${hit.id} class=${kind(changes[hit.id])} d="M0 ${from} C50 ${from} 50 ${to} 100 ${to}" />`;
        })}
      </svg>
      <${Side} side=${here} role="served here" wanted=${wanted}>${here.results.map((hit) => html`<${Row} key=${hit.id} hit=${hit} wanted=${wanted}
        style=${kind(changes[hit.id])} badge=${words(changes[hit.id])} />`)}<//>
    </div>
  </section>`;
}
