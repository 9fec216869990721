// An item's details: the whole picture, its name, all of its metadata, and what can be done with it.
import { html, breakable } from "./html.js";
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { picture } from "./api.js";
import { percent } from "./chances.js";
import { change, hasQuery, say, search, searchFrom, steer } from "./state.js";

/** The items to step through, and the place of the one that is open. */
const opened = signal(null);

/**
 * @param {any[]} items
 * @param {any} item  one of them
 * @param {boolean} steerable  whether it is a result, which can be liked and disliked
 */
export const openDetails = (items, item, steerable = false) => (opened.value = { items, place: items.indexOf(item), steerable });

/** Whether a search can be narrowed to the items that share a value. */
const canNarrow = (value) => hasQuery(search.value) && ["string", "number", "boolean"].includes(typeof value);

const narrow = (name, value) => {
  opened.value = null;
  change({ view: "search", where: { ...search.value.where, [name]: value } });
};

const copy = (text) => navigator.clipboard.writeText(text).then(() => say("Copied."), () => say("This browser does not allow copying."));

const write = (value) => (typeof value === "object" ? JSON.stringify(value) : String(value));

function Facts({ item }) {
  const told = [item.rank && ["rank", item.rank], item.score != null && ["score", item.score.toFixed(4)],
    item.chance != null && ["chance", percent(item.chance)], item.others > 0 && ["others", item.others]];
  const row = (name, value, tool) => html`<div key=${name}><dt>${name}</dt><dd>${breakable(write(value))} ${tool}</dd></div>`;
  return html`<dl class="item-facts">
    ${told.filter(Boolean).map(([name, value]) => row(name, value))}
    ${row("id", item.id, navigator.clipboard && html`<button class="link" aria-label="Copy the id" onClick=${() => copy(item.id)}>copy</button>`)}
    ${Object.entries(item.metadata).map(([name, value]) => row(name, value, canNarrow(value)
      && html`<button class="link" aria-label="Only items with ${name} ${value}" onClick=${() => narrow(name, value)}>only these</button>`))}
  </dl>`;
}

export function Details() {
  const dialog = useRef(null);
  const shown = opened.value;
  useEffect(() => {
    if (shown && !dialog.current.open) dialog.current.showModal();
    if (!shown && dialog.current?.open) dialog.current.close();
  }, [shown]);
  const item = shown?.items[shown.place];
  const close = () => (opened.value = null);
  const step = (by) => {
    const place = shown.place + by;
    if (place >= 0 && place < shown.items.length) opened.value = { ...shown, place };
  };
  const act = (run) => {
    close();
    run();
  };
  const onKey = (event) => {
    event.stopPropagation(); // the page's keys wait
    const steps = { ArrowLeft: -1, ArrowRight: 1 };
    if (event.key in steps) step(steps[event.key]);
  };
  const { like, unlike } = search.value;
  return html`<dialog class="details" ref=${dialog} aria-label="Details" onClose=${close} onKeyDown=${onKey}
      onClick=${(event) => event.target === dialog.current && close()}>
    ${item && html`<div class="details-body">
      <div class="details-picture">${item.thumbnail ? html`<img src=${picture(item, 1024)} alt=${item.label ?? item.id} />` : html`<span class="no-picture">no picture</span>`}</div>
      <div class="details-text">
        <h2>${breakable(item.label ?? item.id)}</h2>
        <div class="details-actions">
          <button class="primary" onClick=${() => act(() => searchFrom(item.id))}>Search from it</button>
          ${shown.steerable && html`<button class="plain" aria-pressed=${like.includes(item.id)} onClick=${() => act(() => steer("like", item.id))}>More like this</button>
            <button class="plain" aria-pressed=${unlike.includes(item.id)} onClick=${() => act(() => steer("unlike", item.id))}>Less like this</button>`}
        </div>
        <${Facts} item=${item} />
      </div>
      <div class="details-tools">
        <button class="plain" aria-label="Previous item" disabled=${shown.place === 0} onClick=${() => step(-1)}>‹</button>
        <button class="plain" aria-label="Next item" disabled=${shown.place === shown.items.length - 1} onClick=${() => step(1)}>›</button>
        <button class="plain" aria-label="Close the details" onClick=${close}>✕</button>
      </div>
    </div>`}
  </dialog>`;
}
