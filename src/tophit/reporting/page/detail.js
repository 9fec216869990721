// One query: its results, what came before the first right one, what the loss would move; two models side by side.
import { html, breakable } from "./html.js";
import { content, count, labelOf, nameOf, percent, plural, points } from "./data.js";
import { kind, sign, words } from "./changes.js";
import { Picture, Plain, Results, Sign, spoken } from "./cells.js";

const ROW = 64; // pixels, as in report.css

/** The classes of the listed results before the first right one, most frequent first. */
function before(side) {
  const wrong = side.items.filter((_, place) => place + 1 < (side.first ?? Infinity)).map(labelOf);
  const times = new Map();
  for (const label of wrong) times.set(label, (times.get(label) ?? 0) + 1);
  return [...times].sort((a, b) => b[1] - a[1]);
}

function Before({ side }) {
  if (side.first === 1) return html`<p class="story-line">The nearest image is right.</p>`;
  const found = before(side);
  const more = side.first == null || side.first > side.items.length + 1;
  return html`<p class="story-line">${side.first == null ? "The gallery has no right answer; the first results are" : html`The first right answer is at rank <b>${count(side.first)}</b>, after`}
    ${" "}${found.map(([label, times], place) => html`${place ? ", " : ""}<b>${times}</b> × ${breakable(label)}`)}${more ? ` among the first ${side.items.length}` : ""}.</p>`;
}

/** The rank of an image if it is known: among the first results, or as the first right one. */
function rankIn(side, number) {
  const place = side.items.indexOf(number);
  return place >= 0 ? place + 1 : number === side.first_picture ? side.first : null;
}

function MisplacedSet({ side, numbers, name, kind }) {
  return html`<ul class="cells small-cells ${kind}" aria-label=${name}>${numbers.map((number) => {
    const rank = rankIn(side, number);
    return html`<${Plain} key=${number} number=${number}>${rank && html`<div class="under"><span>rank <b>${count(rank)}</b></span></div>`}<div class="under name">${breakable(labelOf(number))}</div><//>`;
  })}</ul>`;
}

/** The sets of the top-k precision loss: P belongs among the first k results, N is there instead. */
function Misplaced({ side }) {
  if (!side.belong) return null;
  const [k] = content.top_k;
  if (!side.belong.length) return html`<p class="story-line">The first ${k} results are as good as they can be, with the margin: the loss would move nothing here.</p>`;
  return html`<div class="misplaced">
    <h4>What the top-${k} precision loss would move</h4>
    <div class="sides"><div><p class="muted small">P: should be among the first ${k}</p><${MisplacedSet} side=${side} numbers=${side.belong} name="P" kind="belong" /></div>
    <div><p class="muted small">N: is there instead</p><${MisplacedSet} side=${side} numbers=${side.intrude} name="N" kind="intrude" /></div></div>
  </div>`;
}

function Moved({ number, rank, score, mark, badge, style }) {
  return html`<li class="moved ${style} ${mark}" title="${labelOf(number)}\n${nameOf(number)}">
    <span class="rank">${rank}</span><span class="frame"><${Picture} number=${number} alt="Rank ${rank}, ${spoken(mark)}: ${labelOf(number)}" /><${Sign} mark=${mark} /></span>
    <span class="what"><span class="name">${breakable(labelOf(number))}</span><span class="score">${score.toFixed(3)}</span></span>
    <span class="badge ${style}">${sign[style]}${badge}</span>
  </li>`;
}

/** Both models on the query, from the other (left) to the run (right), with how each result moved. */
function SideBySide({ query }) {
  const [mine, theirs] = query.sides;
  const lost = new Set(query.lost);
  const later = new Map(mine.items.map((number, place) => [number, place + 1]));
  const height = ROW * Math.max(mine.items.length, theirs.items.length);
  return html`<div class="rankings">
    <div><h4>${content.models[1]} <span class="muted">AP ${percent(theirs.precision)}</span></h4><ol aria-label="Results of ${content.models[1]}">
      ${theirs.items.map((number, place) => {
        const gone = lost.has(place);
        const style = gone ? "lost" : kind(query.moved[later.get(number) - 1]);
        return html`<${Moved} key=${place} number=${number} rank=${place + 1} score=${theirs.scores[place]} mark=${theirs.marks[place]} style=${style} badge=${gone ? "lost" : `to ${later.get(number)}`} />`;
      })}</ol></div>
    <svg class="lines" viewBox="0 0 100 ${height}" preserveAspectRatio="none" height=${height} aria-hidden="true">
      ${theirs.items.map((number, place) => {
        if (lost.has(place)) return null;
        const [from, to] = [place + 1, later.get(number)].map((rank) => (rank - 0.5) * ROW);
        return html`<path key=${place} class=${kind(query.moved[later.get(number) - 1])} d="M0 ${from} C50 ${from} 50 ${to} 100 ${to}" />`;
      })}</svg>
    <div><h4>${content.models[0]} <span class="muted">AP ${percent(mine.precision)}</span></h4><ol aria-label="Results of ${content.models[0]}">
      ${mine.items.map((number, place) => html`<${Moved} key=${place} number=${number} rank=${place + 1} score=${mine.scores[place]} mark=${mine.marks[place]}
        style=${kind(query.moved[place])} badge=${words(query.moved[place])} />`)}</ol></div>
  </div>`;
}

/** @param {{query: any, close: () => void}} props */
export function Detail({ query, close }) {
  const [mine, theirs] = query.sides;
  const label = labelOf(query.picture);
  return html`<article class="detail" aria-label="Query ${label}">
    <div class="detail-head">
      <span class="frame query-frame"><${Picture} number=${query.picture} alt="The query: ${label}" /></span>
      <div><h3 tabindex="-1">${label}</h3><p class="muted small path">${breakable(nameOf(query.picture))}</p>
        <p class="small">Average precision <b>${percent(mine.precision)}</b>${theirs && html` (${content.models[1]}: ${percent(theirs.precision)}, <b class=${mine.precision < theirs.precision ? "down" : "up"}>${points(mine.precision - theirs.precision)}</b>)`}
          ${" "}· first right at <b>${mine.first == null ? "–" : count(mine.first)}</b>${theirs && ` (${theirs.first == null ? "–" : count(theirs.first)})`} · ${plural(mine.relevant, "image")} to find</p></div>
      <button class="plain close" aria-label="Close" onClick=${close}>✕</button>
    </div>
    ${theirs ? html`<${SideBySide} query=${query} />` : html`<${Results} side=${mine} label="Results of ${label}" />`}
    <${Before} side=${mine} />
    <${Misplaced} side=${mine} />
  </article>`;
}
