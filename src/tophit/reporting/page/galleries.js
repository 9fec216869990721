// Galleries of queries, the most confused classes, and the queries that got better and worse.
import { html, breakable } from "./html.js";
import { useState } from "preact/hooks";
import { content, count, labelOf, manyOf, nameOf, percent, plural, points } from "./data.js";
import { GalleryRow, MarkLegend, openQuery, Picture, Plain } from "./cells.js";
import { Part } from "./part.js";

const GALLERIES = [
  ["best", "Best queries", "Highest average precision, one per class; of equals those with more to find."],
  ["worst", "Worst queries", "Lowest average precision, one per class."],
  ["random", "Random queries", "A random sample of what to expect."],
];

export function Galleries() {
  return html`<${Part} id="galleries" title="Galleries" brief="the best, the worst and random queries with their results">
    <p class="legend"><${MarkLegend} />
      <span class="muted">Below each image: rank, cosine similarity, class.${content.models.length > 1 ? ` Results of ${content.models[0]}.` : ""}</span></p>
    ${GALLERIES.map(([name, title, text]) => html`<div class="gallery" key=${name}>
      <h3>${title} <span class="muted">${text}</span></h3>
      <ul>${content.galleries[name].map((place) => {
        const query = content.queries[place];
        return html`<${GalleryRow} key=${place} query=${query} place=${place} facts="AP ${percent(query.sides[0].precision)}" />`;
      })}</ul>
    </div>`)}
  <//>`;
}

/** How far off the first results are: right, near or wrong, as one bar. */
function FirstResults() {
  const { first_results: found, words } = content;
  if (!found) return null;
  const marks = Object.keys(words).map((mark) => [mark, found[mark] ?? 0]);
  const total = marks.reduce((sum, [, times]) => sum + times, 0);
  return html`<div class="first-results"><p class="small">The first result is ${marks.map(([mark, times], place) => html`${place ? ", " : ""}<b class=${mark}>${percent(times / total)}</b> ${mark} (${words[mark]})`)}.</p>
    <div class="share" aria-hidden="true">${marks.map(([mark, times]) => html`<span key=${mark} class=${mark} style=${{ flexGrow: times / total }}></span>`)}</div></div>`;
}

export function Pairs() {
  const { confused } = content;
  const [at, setAt] = useState(0);
  const { title, pairs } = confused[at];
  const [most] = confused[0].pairs;
  return html`<${Part} id="confused" title="Confused ${manyOf(confused[0].title)}" brief=${most ? `most often ${most.classes[0].label} and ${most.classes[1].label}, ${plural(most.counts[0] + most.counts[1], "time")}` : "none"}>
    <${FirstResults} />
    ${confused.length > 1 && html`<div class="controls"><label>Level <select value=${at} onChange=${(event) => setAt(Number(event.target.value))}>
      ${confused.map((one, place) => html`<option key=${place} value=${place}>${one.title}</option>`)}</select></label></div>`}
    <p class="lead">${pairs.length ? `Pairs of ${manyOf(title)} whose queries most often have an image of the other as the nearest result. Confused images come first.` : `No query has an image of another ${title} as its nearest result.`}</p>
    <ul class="pairs">${pairs.map(({ classes: [one, two], counts }) => html`<li class="pair" key=${`${one.label} ${two.label}`}>
      <p class="pair-facts">${counts.map((times, at) => times > 0 && html`${at ? " · " : ""}<b>${times}</b> × ${breakable([one, two][at].label)} → ${breakable([two, one][at].label)}`)}</p>
      <div class="sides">${[one, two].map((side) => html`<div key=${side.label}><h3 title=${side.label}>${side.label}</h3>
        <ul class="cells small-cells">${side.items.map((number) => html`<${Plain} key=${number} number=${number} />`)}</ul></div>`)}</div>
    </li>`)}</ul>
  <//>`;
}

const IN_SIGHT = 8; // rows of a table that are visible without scrolling

function Turned({ title, places, of, name }) {
  return html`<div class="turned"><table>
    <caption>${title}: ${places.length < of ? `the first ${count(places.length)} of ${count(of)}` : plural(places.length, "query", "queries")}${places.length > IN_SIGHT && html`<span class="screen">; scroll for all</span>`}</caption>
    <thead><tr><th scope="col">query</th><th scope="col" class="n">${content.models[1]}</th><th scope="col" class="n">${content.models[0]}</th><th scope="col" class="n">change</th></tr></thead>
    <tbody>${places.map((place) => {
      const query = content.queries[place];
      const [after, before] = query.sides.map((side) => side.precision);
      return html`<tr key=${place}><th scope="row"><button class="row-open" onClick=${() => openQuery(place)} title=${nameOf(query.picture)}>
        <${Picture} number=${query.picture} lazy=${false} /><span>${labelOf(query.picture)}</span></button></th>
        <td class="n">${percent(before)}</td><td class="n">${percent(after)}</td><td class="n ${name}">${points(after - before)}</td></tr>`;
    })}</tbody></table></div>`;
}

export function WonAndLost() {
  const { turned, models } = content;
  if (!turned) return null;
  const total = turned.won + turned.lost + turned.equal;
  const { difference } = turned;
  return html`<${Part} id="won" title="Better and worse queries" brief="${count(turned.won)} better, ${count(turned.lost)} worse than ${models[1]}">
    <p class="lead">By average precision ${models[0]} answers <b class="up">${plural(turned.won, "query", "queries")}</b> better than ${models[1]} and
      ${" "}<b class="down">${count(turned.lost)}</b> worse; ${count(turned.equal)} are equal.
      ${difference && html` The mean changes by <b>${points(difference.mean)}</b> points (95% interval ${points(difference.low)} to ${points(difference.high)}, paired, over classes).`}</p>
    <div class="share" aria-hidden="true">${["won", "equal", "lost"].map((one) => html`<span class=${one} style=${{ flexGrow: turned[one] / Math.max(1, total) }}></span>`)}</div>
    <div class="two-tables">
      <${Turned} title="Better, largest gain in average precision first" places=${turned.most_won} of=${turned.won} name="up" />
      <${Turned} title="Worse, largest loss of average precision first" places=${turned.most_lost} of=${turned.lost} name="down" />
    </div>
  <//>`;
}
