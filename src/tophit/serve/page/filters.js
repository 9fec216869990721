// Filters by metadata: choose a field, then a value or a range; each filter is a chip that can be taken away.
import { html } from "./html.js";
import { useState } from "preact/hooks";
import { about, change, search } from "./state.js";

const SIGNS = { eq: "=", ne: "≠", lt: "<", lte: "≤", gt: ">", gte: "≥", in: "in" };

/** The conditions of a filter as [field, operator, value]. */
function conditions(where) {
  return Object.entries(where).flatMap(([field, wanted]) => {
    if (Array.isArray(wanted)) return [[field, "in", wanted]];
    if (wanted && typeof wanted === "object") return Object.entries(wanted).map(([sign, value]) => [field, sign, value]);
    return [[field, "eq", wanted]];
  });
}

function without(where, field, sign) {
  const next = { ...where };
  const wanted = next[field];
  if (wanted && typeof wanted === "object" && !Array.isArray(wanted)) {
    const { [sign]: _, ...rest } = wanted;
    if (Object.keys(rest).length) return { ...next, [field]: rest };
  }
  delete next[field];
  return next;
}

export function Filters() {
  const fields = about.value?.fields ?? [];
  const where = search.value.where;
  const [field, setField] = useState("");
  const facts = fields.find((one) => one.name === field);
  const numeric = facts && facts.least != null && facts.values.length > 12;

  const add = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const sign = String(form.get("sign") || "eq");
    const text = String(form.get("value") ?? "").trim();
    if (!facts || !text) return;
    const known = facts.values.find((one) => String(one.value) === text);
    const value = numeric ? Number(text) : known ? known.value : text;
    if (sign === "eq" && !numeric) {
      const now = where[field]; // a second value of a field means either of them
      const list = now === undefined ? [] : Array.isArray(now) ? now : typeof now === "object" ? [] : [now];
      const all = [...new Set([...list, value])];
      change({ where: { ...where, [field]: all.length > 1 ? all : value } });
    } else {
      const now = where[field] && typeof where[field] === "object" && !Array.isArray(where[field]) ? where[field] : {};
      change({ where: { ...where, [field]: { ...now, [sign]: value } } });
    }
    event.target.reset();
  };

  return html`<section class="filters" aria-label="Filters">
    <form onSubmit=${add}>
      <label>Filter
        <select id="filter-field" value=${field} onChange=${(event) => setField(event.target.value)}>
          <option value="">by …</option>
          ${fields.map((one) => html`<option value=${one.name}>${one.name}</option>`)}
        </select>
      </label>
      ${facts && html`
        <select name="sign" aria-label="Comparison">
          ${Object.entries(SIGNS).filter(([sign]) => sign !== "in" && (numeric || sign === "eq" || sign === "ne"))
            .map(([sign, text]) => html`<option value=${sign}>${text}</option>`)}
        </select>
        <input name="value" list="filter-values" autocomplete="off" aria-label="Value of ${field}"
          placeholder=${numeric ? `${facts.least} … ${facts.most}` : "value"} inputmode=${numeric ? "decimal" : "text"} />
        <datalist id="filter-values">${facts.values.slice(0, 500).map((one) => html`<option value=${String(one.value)}>${one.count}</option>`)}</datalist>
        <button class="plain">Add</button>`}
    </form>
    <ul class="chips">
      ${conditions(where).map(([name, sign, value]) => html`<li class="chip">
        <span>${name} ${SIGNS[sign] ?? sign} ${Array.isArray(value) ? value.join(" or ") : String(value)}</span>
        <button aria-label="Remove the filter ${name}" onClick=${() => change({ where: without(where, name, sign) })}>×</button>
      </li>`)}
    </ul>
  </section>`;
}
