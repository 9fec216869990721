// Pictures: a result in the frame of its mark, a query, and a row of both as in figures of papers.
import { html, breakable } from "./html.js";
import { content, labelOf, nameOf, opened, shortOf, source } from "./data.js";
import { openPart } from "./part.js";

/** @param {{number: number, alt?: string, lazy?: boolean}} props */
export function Picture({ number, alt = "", lazy = false }) {
  const address = source(number);
  return address
    ? html`<img src=${address} alt=${alt} decoding="async" loading=${lazy ? "lazy" : null} draggable=${false} />`
    : html`<span class="no-picture" role=${alt ? "img" : null} aria-label=${alt || null}>${labelOf(number).slice(0, 3)}</span>`;
}

const SIGNS = { right: "✓", near: "≈", wrong: "✗" }; // "after" all right ones there is no sign

/** A mark in words, for those who do not see it. */
export const spoken = (mark) => (mark === "after" ? "after all right ones" : mark);

/** The sign of a mark, for a corner of a picture or a legend. */
export const Sign = ({ mark }) => SIGNS[mark] && html`<span class="mark" aria-hidden="true">${SIGNS[mark]}</span>`;

/** What the marks of results mean. */
export function MarkLegend() {
  return Object.entries(content.words).map(([mark, words]) => html`<span class="key ${mark}" key=${mark}><${Sign} mark=${mark} /> ${words}</span> `);
}

/** A result: its frame and the sign in its corner say what it is to the query: right, near or wrong. */
export function Result({ number, rank, score, mark, children }) {
  const label = labelOf(number);
  return html`<li class="cell ${mark}" title="${label}\n${nameOf(number)}">
    <div class="frame"><${Picture} number=${number} alt="Rank ${rank}, ${spoken(mark)}: ${label}" /><${Sign} mark=${mark} /></div>
    <div class="under"><b>${rank}</b>${score != null && html`<span>${score.toFixed(2)}</span>`}</div>
    <div class="under name">${breakable(shortOf(number))}</div>
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
  const { items, scores, marks, first, first_picture: late } = side;
  return html`<ol class="cells" aria-label=${label}>
    ${items.map((number, place) => html`<${Result} key=${place} number=${number} rank=${place + 1} score=${scores[place]} mark=${marks[place]} />`)}
    ${first > items.length && html`<${Result} number=${late} rank=${first} mark="right"><span class="gap" aria-hidden="true">…</span><//>`}
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
      <span class="under name">${breakable(shortOf(query.picture))}</span><span class="under">${facts}</span>
    </button>
    <${Results} side=${query.sides[0]} label="What ${label} found" />
  </li>`;
}
