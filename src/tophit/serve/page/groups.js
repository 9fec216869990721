// Groups: one card for each product, and the others of a product in a strip below its row, when somebody asks.
import { useEffect, useState } from "preact/hooks";
import { breakable, html } from "./html.js";
import { openDetails } from "./details.js";
import { Picture } from "./picture.js";
import { about, change, fail, othersOf, search } from "./state.js";

/** The fields that put items together: some value is shared by several. */
const groupings = () => (about.value?.fields ?? []).filter((one) => !one.complete || one.values.some(({ count }) => count > 1));

/** Choose the field of which each value is shown once. */
export function GroupBy() {
  const fields = groupings();
  if (!fields.length) return null;
  return html`<label>One result per <select id="group" value=${search.value.group} onChange=${(event) => change({ group: event.target.value })}>
    <option value="">picture</option>
    ${fields.map((one) => html`<option value=${one.name}>${one.name}</option>`)}</select></label>`;
}

/** The rest of a card's group, nearest first; asked for when it is opened. */
export function Others({ item }) {
  const [others, setOthers] = useState(null);
  const value = item.metadata[search.value.group];
  useEffect(() => {
    othersOf(item).then(setOthers, fail);
  }, [item.id]);
  return html`<li class="others" aria-label="Others of ${value}">
    <h3>${others ? html`${others.length} more of ${search.value.group} ${breakable(value)}` : "Searching …"}</h3>
    <ul>${(others ?? []).map((one) => html`<li key=${one.id}>
      <button class="open" aria-label="Details of ${one.label ?? one.id}, score ${one.score.toFixed(2)}" title="${one.id}\n${one.score.toFixed(3)}"
        onClick=${() => openDetails(others, one, true)}><${Picture} item=${one} size=${160} /></button></li>`)}</ul>
  </li>`;
}
