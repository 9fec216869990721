// Items as a grid of cards: click to search from one, look at its details, like or dislike to steer.
import { html, breakable } from "./html.js";
import { Chance, percent } from "./chances.js";
import { useState } from "preact/hooks";
import { openDetails } from "./details.js";
import { Others } from "./groups.js";
import { Picture } from "./picture.js";
import { search, searchFrom, steer } from "./state.js";

/** Move the focus among cards by the arrow keys, and act on the focused one by letters. */
function onKey(event) {
  const card = event.target.closest("[data-id]");
  if (!card || event.ctrlKey || event.metaKey || event.altKey) return;
  const cards = [...card.parentElement.children].filter((one) => one.dataset.id);
  const columns = cards.filter((one) => one.offsetTop === cards[0].offsetTop).length;
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
  if (event.key in steps) {
    const next = cards[cards.indexOf(card) + steps[event.key]];
    next?.querySelector(".open")?.focus();
    event.preventDefault();
  } else if (event.key === "l" || event.key === "d") {
    if (card.dataset.steerable) steer(event.key === "l" ? "like" : "unlike", card.dataset.id);
  } else if (event.key === "i") card.querySelector(".inspect")?.click();
  else if (event.key === "o") card.querySelector(".more-of")?.click();
}

/** Whether a result has the query's label, as a word; "" where that can't be said. */
export const judged = (item, wanted) => (wanted == null || item.label == null ? "" : item.label === wanted ? "right" : "wrong");

/** The mark of a result in the corner of its picture. */
export const Mark = ({ word }) => word && html`<span class="mark ${word}" aria-hidden="true">${word === "right" ? "✓" : "✗"}</span>`;

/** @param {{item: any, items: any[], steerable?: boolean, wanted?: string|null, opened?: boolean, toggle: () => void}} props */
function Card({ item, items, steerable, wanted, opened, toggle }) {
  const { like, unlike } = search.value;
  const liked = like.includes(item.id);
  const disliked = unlike.includes(item.id);
  const name = item.label ?? item.id;
  const word = judged(item, wanted);
  const words = item.rank ? `Rank ${item.rank}, ${name}, ${word && `${word}, `}score ${item.score.toFixed(2)}${item.chance == null ? "" : `, chance ${percent(item.chance)}`}. Search from it` : `Search from ${name}`;
  return html`
    <li class="card ${word} ${liked ? "liked" : ""} ${disliked ? "disliked" : ""}" data-id=${item.id} data-steerable=${steerable ? "1" : null}>
      <button class="open" aria-label=${words} title="${name}\n${item.id}" onClick=${() => searchFrom(item.id)}>
        <${Picture} item=${item} /><${Mark} word=${word} />
      </button>
      <div class="caption">
        <span class="name" title=${name}>${breakable(name)}</span>
        ${item.score != null && html`<span class="line"><b>${item.rank}</b><span class="score">${item.score.toFixed(3)}</span><${Chance} value=${item.chance} />
          ${item.others > 0 && html`<button class="more-of" aria-expanded=${opened} aria-label="${item.others} more of the group of ${name}" title="Show the others (o)" onClick=${toggle}>+${item.others}</button>`}</span>`}
      </div>
      <div class="steer">
        <button class="inspect" aria-label="Details of ${name}" title="Details (i)" onClick=${() => openDetails(items, item, steerable)}>i</button>
        ${steerable && html`
        <button aria-pressed=${liked} aria-label="More like ${name}" title="More like this (l)" onClick=${() => steer("like", item.id)}>+</button>
        <button aria-pressed=${disliked} aria-label="Less like ${name}" title="Less like this (d)" onClick=${() => steer("unlike", item.id)}>−</button>`}
      </div>
    </li>
  `;
}

/**
 * @param {{items: any[], steerable?: boolean, wanted?: string|null, label: string}} props
 * `wanted` is the query's label: cards say whether they have it.
 */
export function Grid({ items, steerable = false, wanted = null, label }) {
  const [opened, setOpened] = useState(null); // the card whose group is shown
  return html`<ol class="grid" aria-label=${label} onKeyDown=${onKey}>
    ${items.map((item) => html`<${Card} key=${item.id} item=${item} items=${items} steerable=${steerable} wanted=${wanted}
        opened=${opened === item.id} toggle=${() => setOpened(opened === item.id ? null : item.id)} />
      ${opened === item.id && item.others > 0 && html`<${Others} key="others of ${item.id}" item=${item} />`}`)}
  </ol>`;
}
