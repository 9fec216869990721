// Items as a grid of cards: click to search from one, like or dislike to steer.
import { html } from "./html.js";
import { picture } from "./api.js";
import { search, searchFrom, steer } from "./state.js";

/** Move the focus among cards by the arrow keys, and act on the focused one by letters. */
function onKey(event) {
  const card = event.target.closest("[data-id]");
  if (!card || event.ctrlKey || event.metaKey || event.altKey) return;
  const cards = [...card.parentElement.children];
  const columns = cards.filter((one) => one.offsetTop === cards[0].offsetTop).length;
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
  if (event.key in steps) {
    const next = cards[cards.indexOf(card) + steps[event.key]];
    next?.querySelector(".open")?.focus();
    event.preventDefault();
  } else if (event.key === "l" || event.key === "d") {
    if (card.dataset.steerable) steer(event.key === "l" ? "like" : "unlike", card.dataset.id);
  }
}

/** @param {{item: any, size?: 160|320, lazy?: boolean}} props */
export function Picture({ item, size = 320 }) {
  const source = picture(item, size);
  return source
    ? html`<img src=${source} alt="" loading="lazy" decoding="async" draggable=${false} />`
    : html`<span class="no-picture" aria-hidden="true">${(item.label ?? item.id ?? "?").slice(0, 2)}</span>`;
}

/** @param {{item: any, steerable?: boolean, right?: boolean|null}} props */
function Card({ item, steerable, wanted }) {
  const { like, unlike } = search.value;
  const liked = like.includes(item.id);
  const disliked = unlike.includes(item.id);
  const name = item.label ?? item.id;
  const words = item.rank ? `Rank ${item.rank}, ${name}, score ${item.score.toFixed(2)}. Search from it` : `Search from ${name}`;
  const mark = wanted == null || item.label == null ? "" : item.label === wanted ? "right" : "wrong";
  const facts = Object.entries(item.metadata).filter(([key]) => key !== "label").map(([key, value]) => `${key}: ${value}`);
  return html`
    <li class="card ${mark} ${liked ? "liked" : ""} ${disliked ? "disliked" : ""}" data-id=${item.id} data-steerable=${steerable ? "1" : null}>
      <button class="open" aria-label=${words} title=${[item.id, ...facts].join("\n")} onClick=${() => searchFrom(item.id)}>
        <${Picture} item=${item} />
      </button>
      <div class="caption">
        <span class="name">${item.rank ? html`<b>${item.rank}</b> ` : ""}${name}</span>
        ${item.score != null && html`<span class="score">${item.score.toFixed(3)}</span>`}
      </div>
      ${steerable &&
      html`<div class="steer">
        <button aria-pressed=${liked} aria-label="More like ${name}" title="More like this (l)" onClick=${() => steer("like", item.id)}>+</button>
        <button aria-pressed=${disliked} aria-label="Less like ${name}" title="Less like this (d)" onClick=${() => steer("unlike", item.id)}>−</button>
      </div>`}
    </li>
  `;
}

/**
 * @param {{items: any[], steerable?: boolean, wanted?: string|null, label: string}} props
 * `wanted` is the query's label: cards say whether they have it.
 */
export function Grid({ items, steerable = false, wanted = null, label }) {
  return html`<ol class="grid" aria-label=${label} onKeyDown=${onKey}>
    ${items.map((item) => html`<${Card} key=${item.id} item=${item} steerable=${steerable} wanted=${wanted} />`)}
  </ol>`;
}
