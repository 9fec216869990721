// A hierarchy of labels as a list to walk down: the branches with their numbers of items, one level at a time.
import { html } from "./html.js";
import { about, change, search } from "./state.js";

const LEVEL = /^level\d+$/;

/** The fields of a hierarchy from the coarsest: level1, level2 …, and the label as the leaf; none without one. */
export function levelsOf(fields) {
  const levels = fields.filter((one) => LEVEL.test(one.name)).sort((a, b) => Number(a.name.slice(5)) - Number(b.name.slice(5)));
  const leaf = fields.find((one) => one.name === "label");
  return levels.length && leaf ? [...levels, leaf] : [];
}

/** The branch that the filter names: its depth and its value, the deepest if there are several. */
function chosenIn(levels, where) {
  const depth = levels.findLastIndex(({ name }) => typeof where[name] === "string");
  return { depth, branch: depth < 0 ? "" : where[levels[depth].name] };
}

export function Facets() {
  const levels = levelsOf(about.value?.fields ?? []);
  if (!levels.length) return null;
  const { where } = search.value;
  const { depth, branch } = chosenIn(levels, where);
  const go = (to, value) => {
    const rest = Object.fromEntries(Object.entries(where).filter(([name]) => !levels.some((one) => one.name === name)));
    change({ where: to < 0 ? rest : { ...rest, [levels[to].name]: value } });
  };
  const names = branch ? branch.split("/") : [];
  const below = levels[depth + 1];
  const inside = below?.values.filter(({ value }) => !branch || String(value).startsWith(`${branch}/`)) ?? [];
  inside.sort((a, b) => b.count - a.count);
  return html`<section class="facets" aria-label="Branches">
    <ol class="trail"><li><button class="link" aria-current=${depth < 0 ? "true" : null} onClick=${() => go(-1)}>All</button></li>
      ${names.map((name, place) => html`<li key=${place}><button class="link" aria-current=${place === depth ? "true" : null} onClick=${() => go(place, names.slice(0, place + 1).join("/"))}>${name}</button></li>`)}</ol>
    ${inside.length > 0 && html`<ul class="branches">${inside.map(({ value, count }) => html`<li key=${value}>
      <button class="plain" title=${value} onClick=${() => go(depth + 1, value)}><span class="name">${String(value).split("/").at(-1)}</span> <span class="muted">${count.toLocaleString("en")}</span></button></li>`)}</ul>`}
    ${below && !below.complete && html`<p class="muted small">More than ${below.values.length.toLocaleString("en")} there; filter by ${below.name} for others.</p>`}
  </section>`;
}
