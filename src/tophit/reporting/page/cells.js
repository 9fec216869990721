// Pictures: a result in its green or red frame, a query, and a row of both as in figures of papers.
import { html } from "./html.js";
import { labelOf, nameOf, opened, source } from "./data.js";
import { openPart } from "./part.js";

/** @param {{number: number, alt?: string, lazy?: boolean}} props */
export function Picture({ number, alt = "", lazy = false }) {
  const address = source(number);
  return address
    ? html`<img src=${address} alt=${alt} decoding="async" loading=${lazy ? "lazy" : null} draggable=${false} />`
    : html`<span class="no-picture" role=${alt ? "img" : null} aria-label=${alt || null}>${labelOf(number).slice(0, 3)}</span>`;
}

/** A result: the frame and the mark in its corner say whether it is of the query's class. */
export function Result({ number, rank, score, right, children }) {
  const [label, word] = [labelOf(number), right ? "right" : "wrong"];
  return html`<li class="cell ${word}" title="${label}\n${nameOf(number)}">
    <div class="frame"><${Picture} number=${number} alt="Rank ${rank}, ${word}: ${label}" /><span class="mark" aria-hidden="true">${right ? "✓" : "✗"}</span></div>
    <div class="under"><b>${rank}</b>${score != null && html`<span>${score.toFixed(2)}</span>`}</div>
    <div class="under name">${label}</div>
    ${children}
  </li>`;
}

/** An image without a mark. */
export function Plain({ number, children }) {
  return html`<li class="cell plain" title="${labelOf(number)}\n${nameOf(number)}">
    <div class="frame"><${Picture} number=${number} alt=${labelOf(number)} /></div>${children}
  </li>`;
}

/** The results of one model, and the first right one if it comes after them. */
export function Results({ side, label }) {
  const { items, scores, right, first, first_picture: late } = side;
  return html`<ol class="cells" aria-label=${label}>
    ${items.map((number, place) => html`<${Result} key=${place} number=${number} rank=${place + 1} score=${scores[place]} right=${right[place]} />`)}
    ${first > items.length && html`<${Result} number=${late} rank=${first} right=${true}><span class="gap" aria-hidden="true">…</span><//>`}
  </ol>`;
}

/** Open a query in the list of queries and go there. */
export function openQuery(place) {
  opened.value = place;
  openPart("queries");
  requestAnimationFrame(() => document.querySelector(".detail h3")?.focus({ preventScroll: true }));
}

/** A query and its first results, as a row of a paper's figure. */
export function GalleryRow({ query, place, facts }) {
  const label = labelOf(query.picture);
  return html`<li class="gallery-row">
    <button class="asked-cell" onClick=${() => openQuery(place)} title="${label}\n${nameOf(query.picture)}" aria-label="Query ${label}: open it among the worst queries">
      <span class="frame"><${Picture} number=${query.picture} /></span>
      <span class="under name">${label}</span><span class="under">${facts}</span>
    </button>
    <${Results} side=${query.sides[0]} label="What ${label} found" />
  </li>`;
}
