// The verdict, the metrics with their intervals, the drawings.
import { html } from "./html.js";
import { GalleryRow, MarkLegend } from "./cells.js";
import { bounds, content, count, hasPictures, percent, plural, points, verdictOn } from "./data.js";
import { Part } from "./part.js";

const SAMPLED = 3; // random searches on the first screen

/** A value and its interval on a scale from 0 to 100 %; `kind` colours it. */
function Range({ value, interval, kind = "" }) {
  if (!interval) return null;
  const [low, high] = interval.map((one) => 100 * one);
  return html`<span class="range ${kind}" aria-hidden="true">
    <span class="band" style=${{ left: `${low}%`, width: `${Math.max(0.6, high - low)}%` }}></span>
    <span class="dot" style=${{ left: `${100 * value}%` }}></span>
  </span>`;
}

/** What the metrics of the first screen mean. */
const MEANING = {
  "recall@1": "the first result is right",
  "precision@5": "of the first 5 results are right",
};
const meaning = (name) => MEANING[name] ?? (name.startsWith("recall@") ? `a right one is among the first ${name.slice(7)}` : "");

function Fact({ row }) {
  const half = row.interval ? `±${(50 * (row.interval[1] - row.interval[0])).toFixed(1)}` : "";
  return html`<div class="fact big">
    <b>${percent(row.value)}<small>${half}</small></b><span>${meaning(row.name)} <em>${row.name}</em></span>
    <${Range} ...${row} />
    ${row.difference != null && html`<span class="badge ${verdictOn(row)}">${points(row.difference)} points</span>`}
  </div>`;
}

/** Some random searches: what a person sees who uses the model. */
function Sample() {
  const places = content.galleries.random.slice(0, SAMPLED);
  if (!places.length || !hasPictures) return null;
  return html`<div class="sample" id="sample">
    <h2>Random searches <span class="legend"><${MarkLegend} /></span></h2>
    <ul>${places.map((place) => {
      const query = content.queries[place];
      const shown = Math.min(10, query.sides[0].items.length);
      const marks = query.sides[0].marks.slice(0, shown);
      const [right, near] = ["right", "near"].map((one) => marks.filter((mark) => mark === one).length);
      const most = Math.min(shown, query.sides[0].relevant); // a small class has fewer to find than are shown
      return html`<${GalleryRow} key=${place} query=${query} place=${place} facts=${`${right} of ${most}${near ? `, ${near} near` : ""} in top ${shown}`} />`;
    })}</ul></div>`;
}

export function Hero() {
  const { models, headline, verdict, metrics, counts, notes } = content;
  const wide = metrics.map((row) => row.name).filter((name) => /^recall@\d+$/.test(name) && Number(name.slice(7)) <= 10).at(-1);
  const shown = [...new Set(["recall@1", wide, "precision@5"])].map((name) => metrics.find((row) => row.name === name)).filter(Boolean);
  return html`<section class="hero" aria-label="Verdict">
    <p class="kicker">${models[0]}${models[1] && html` <span>against</span> ${models[1]}`}</p>
    <h1>${headline}</h1>
    <div class="facts-row">${shown.map((row) => html`<${Fact} key=${row.name} row=${row} />`)}</div>
    <${Sample} />
    <p class="verdict">${verdict}</p>
    <p class="muted small">${plural(counts.queries, "query", "queries")} on ${plural(counts.gallery, "image")} of ${plural(counts.classes, "class", "classes")}, the test split${counts.skipped ? html`; ${count(counts.skipped)} without a right answer are left out` : ""}. Intervals: 95%, by bootstrap over classes. ${content.metric} selected the epoch.</p>
    ${notes.map((note) => html`<p class="note">${note}</p>`)}
  </section>`;
}

export function Metrics() {
  const { counts, metrics, models, paper, protocol, test_sets: sets } = content;
  const two = models.length > 1;
  return html`<${Part} id="metrics" title="Metrics" brief="${plural(metrics.length, "metric")} with 95% intervals${two ? ", and the differences" : ""}">
    <div class="scroll"><table class="metrics">
      <caption>${two ? `Both models on the same queries, in percent; the difference is ${models[0]} minus ${models[1]}, with its paired interval.` : "Means over the queries, in percent, with 95% intervals over classes."}</caption>
      <thead><tr><th scope="col">metric</th><th scope="col" class="n">${two ? models[0] : "value"}</th>
        ${two ? html`<th scope="col" class="n">${models[1]}</th><th scope="col" class="n">difference</th>` : null}
        <th scope="col">95% interval</th>${two && html`<th scope="col" class="n p" title="permutation test">p</th>`}<th scope="col" class="wide" aria-hidden="true"></th></tr></thead>
      <tbody>${metrics.map((row) => html`<tr key=${row.name}>
        <th scope="row">${row.name}</th><td class="n"><b>${(100 * row.value).toFixed(1)}</b></td>
        ${two ? html`<td class="n">${(100 * row.other).toFixed(1)}</td><td class="n ${verdictOn(row)}">${points(row.difference)}</td>` : null}
        <td>${two ? bounds(row.bounds, (one) => points(one)) : bounds(row.interval)}</td>
        ${two && html`<td class="n p">${row.p?.toFixed(4)}</td>`}
        <td class="wide"><${Range} ...${row} />${two && html`<${Range} value=${row.other} interval=${row.other_interval} kind="second" />`}</td>
      </tr>`)}</tbody>
    </table></div>
    ${two && html`<p class="muted small under-table">${plural(metrics.length, "metric")} are compared; p (permutation test) is not adjusted for their number. A difference is coloured if its interval (bootstrap over classes) excludes 0 and p is below 0.05. With few classes (here ${count(counts.classes)}) such intervals are too narrow.</p>`}
    ${Object.keys(sets).length > 0 && html`<div class="scroll"><table><caption>${protocol === "all" ? "Every image of a test set searches all others of the set" : "Galleries of one random image per class, mean of 10 draws"}, in percent. The lists and galleries of this report use the whole set instead.</caption>
      <thead><tr><th scope="col">test set</th><th scope="col" class="n">recall@1</th><th scope="col" class="n">recall@5</th><th scope="col" class="n">mAP</th></tr></thead>
      <tbody>${Object.entries(sets).map(([name, found]) => html`<tr key=${name}><th scope="row">${name}</th>
        ${["recall@1", "recall@5", "mAP"].map((one) => html`<td class="n">${(100 * found[one]).toFixed(2)}</td>`)}</tr>`)}</tbody></table></div>`}
    ${paper && html`<div class="scroll"><table><caption>${[paper.title, paper.table, paper.row].filter(Boolean).join(", ")}</caption>
      <thead><tr><th scope="col">metric</th><th scope="col" class="n">here</th><th scope="col" class="n">the paper</th></tr></thead>
      <tbody>${Object.entries(paper.metrics).map(([name, found]) => html`<tr key=${name}><th scope="row">${name}</th>
        <td class="n">${found.ours?.toFixed(name.startsWith("dists@") ? 3 : 2) ?? "–"}</td><td class="n">${found.paper}</td></tr>`)}</tbody></table></div>`}
    ${paper?.set_up && html`<p class="muted small under-table">${paper.set_up}.</p>`}
  <//>`;
}

const Figures = ({ drawings }) => html`<div class="drawings">${drawings.map((one) => html`<figure key=${one.name} id="drawing-${one.name}">
    <h3>${one.title}</h3><div class="drawn" dangerouslySetInnerHTML=${{ __html: one.svg }}></div><figcaption>${one.caption}</figcaption>
  </figure>`)}</div>`;

export function Drawings() {
  const { drawings } = content;
  if (!drawings?.length) return null;
  return html`<${Part} id="curves" title="Curves" brief=${drawings.map(({ title }) => (/^[A-Z]{2}/.test(title) ? title : title[0].toLowerCase() + title.slice(1))).join(", ")}>
    <${Figures} drawings=${drawings} />
  <//>`;
}

/** How likely results are right, and whether that held. */
export function Chances() {
  const { chances } = content;
  if (!chances) return null;
  return html`<${Part} id="chances" title="Chances" brief="are results told at 90% right in 90 of 100 cases, and are unknown queries noticed?">
    ${chances.sentences.map((sentence) => html`<p class="under-table">${sentence}</p>`)}
    <${Figures} drawings=${chances.drawings} />
  <//>`;
}
