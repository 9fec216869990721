// Label problems, the local centres of the classes, and what was trained.
import { html, breakable } from "./html.js";
import { content, count, labelOf, nameOf, percent, plural } from "./data.js";
import { Picture, Plain } from "./cells.js";
import { Part } from "./part.js";

const NEARER = "nearer to another class"; // as in label_problems.py

const LIKELY = 0.5; // of suspects this clear at least half were wrong when measured

/** How far the list can be trusted, in a sentence. */
function Measured({ planted }) {
  if (!planted) return html`<p class="lead">There are too few images to measure how many of the suspects nearer to another class are really wrong.</p>`;
  return html`<p class="lead measured">Measured on these images: ${plural(planted.changed, "label")} were changed on purpose, ${planted.times} times over, every other one to the most similar class.
    Of as many first suspects <b>${percent(planted.precision, 0)}</b> were the changed ones, and ${percent(planted.recall, 0)} of the changed labels were found.
    The other suspects were there before: real mistakes, or classes that look alike.</p>`;
}

function Problem({ one }) {
  return html`<li class="problem">
    <ul class="cells small-cells">${one.images.map((image) => html`<li class="cell plain" key=${image.picture} title=${nameOf(image.picture)}>
      <div class="frame"><${Picture} number=${image.picture} alt=${image.label} /></div><div class="under name"><b>${breakable(image.label)}</b></div><div class="under name">${image.split}</div></li>`)}</ul>
    ${one.precision != null && html`<p class="small precision ${one.precision >= LIKELY ? "likely" : ""}" title="the part of suspects at least as clear as this one that were wrong when measured"><b>${percent(one.precision, 0)}</b> of suspects this clear were wrong when measured</p>`}
    <p class="small">${breakable(one.reason)}.</p><p class="small muted">${breakable(one.advice)}.</p><p class="muted path">${one.images.map((image, side) => [side ? " · " : "", breakable(image.file)])}</p></li>`;
}

/** The problems of a kind: those that are likely wrong, and the others folded. */
function Kind({ kind }) {
  const doubtful = kind.shown.filter((one) => one.precision != null && one.precision < LIKELY);
  const likely = kind.shown.filter((one) => !doubtful.includes(one));
  return html`<div class="problems">
    <h3>${kind.title} <span class="muted">${kind.shown.length < kind.found ? `the first ${kind.shown.length} of ${count(kind.found)}` : count(kind.found)}</span></h3>
    ${likely.length > 0 && html`<ul>${likely.map((one, place) => html`<${Problem} key=${place} one=${one} />`)}</ul>`}
    ${doubtful.length > 0 && html`<details class="doubtful"><summary>${plural(doubtful.length, "suspect")} of which most are right: classes that look alike</summary>
      <ul>${doubtful.map((one, place) => html`<${Problem} key=${place} one=${one} />`)}</ul></details>`}
  </div>`;
}

export function Problems() {
  const { problems } = content;
  if (!problems) return null;
  const { found, planted, kinds, file } = problems;
  const measured = kinds.some((kind) => kind.shown.some((one) => one.precision != null));
  const brief = found ? `${plural(found, "suspect")}${planted && measured ? `; in a test with planted errors, ${percent(planted.precision, 0)} of the first suspects were wrong` : ""}` : "none found";
  return html`<${Part} id="labels" title="Label problems" brief=${brief}>
    <p class="lead">${found ? html`${plural(found, "possible problem")} to check, the clearest first; all are in <code>${file}</code>.` : "No wrong labels or duplicates were found."}</p>
    ${kinds.some((kind) => kind.name === NEARER) && html`<${Measured} planted=${planted} />`}
    ${kinds.map((kind) => html`<${Kind} key=${kind.name} kind=${kind} />`)}
  <//>`;
}

export function Centres() {
  const { centres } = content;
  if (!centres) return null;
  return html`<${Part} id="centres" title="Local centres" brief="the training images nearest to each centre of ${plural(centres.classes.length, "class", "classes")}">
    <p class="lead">${centres.text}</p>
    <ul class="centres">${centres.classes.map((each) => html`<li class="centre-class" key=${each.label}><h3>${breakable(each.label)} <span class="muted">${plural(each.used, "centre")}</span></h3>
      ${each.proxies.map((proxy) => html`<div class="centre" key=${proxy.number}><p class="muted small">${proxy.text}</p>
        <ul class="cells small-cells">${proxy.nearest.map((near) => html`<${Plain} key=${near.picture} number=${near.picture}><div class="under ${near.own ? "" : "down"}"><span>${near.similarity.toFixed(2)}</span>${!near.own && html`<span class="name">${labelOf(near.picture)}</span>`}</div><//>`)}</ul></div>`)}
    </li>`)}</ul>
  <//>`;
}

export function Recipe() {
  const { facts, yaml } = content.recipe;
  return html`<${Part} id="recipe" title="What was trained" brief="${facts.loss} on ${facts.backbone}, seed ${facts.seed}">
    <dl class="recipe-facts">${Object.entries(facts).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    <details><summary>The whole recipe</summary><pre>${yaml}</pre></details>
  <//>`;
}
