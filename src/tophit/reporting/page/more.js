// Label problems, the local centres of the classes, and what was trained.
import { html, breakable } from "./html.js";
import { content, count, labelOf, nameOf, plural } from "./data.js";
import { Picture, Plain } from "./cells.js";

export function Problems() {
  const { problems } = content;
  if (!problems) return null;
  return html`<section class="part" id="labels">
    <h2>Label problems</h2>
    <p class="lead">${problems.found ? html`${plural(problems.found, "possible problem")} to check; all are in <code>${problems.file}</code>.` : "No wrong labels or duplicates were found."}</p>
    ${problems.kinds.map((kind) => html`<div class="problems" key=${kind.name}>
      <h3>${kind.title} <span class="muted">${kind.shown.length < kind.found ? `the first ${kind.shown.length} of ${count(kind.found)}` : count(kind.found)}</span></h3>
      <ul>${kind.shown.map((one, place) => html`<li class="problem" key=${place}>
        <ul class="cells small-cells">${one.images.map((image) => html`<li class="cell plain" key=${image.picture} title=${nameOf(image.picture)}>
          <div class="frame"><${Picture} number=${image.picture} alt=${image.label} /></div><div class="under name"><b>${image.label}</b></div><div class="under name">${image.split}</div></li>`)}</ul>
        <p class="small">${one.reason}.</p><p class="small muted">${one.advice}.</p><p class="muted path">${one.images.map((image, side) => [side ? " · " : "", breakable(image.file)])}</p></li>`)}</ul>
    </div>`)}
  </section>`;
}

export function Centres() {
  const { centres } = content;
  if (!centres) return null;
  return html`<section class="part" id="centres">
    <h2>Local centres</h2>
    <p class="lead">${centres.text}</p>
    <ul class="centres">${centres.classes.map((each) => html`<li class="centre-class" key=${each.label}><h3>${each.label} <span class="muted">${plural(each.used, "centre")}</span></h3>
      ${each.proxies.map((proxy) => html`<div class="centre" key=${proxy.number}><p class="muted small">${proxy.text}</p>
        <ul class="cells small-cells">${proxy.nearest.map((near) => html`<${Plain} key=${near.picture} number=${near.picture}><div class="under ${near.own ? "" : "down"}"><span>${near.similarity.toFixed(2)}</span>${!near.own && html`<span class="name">${labelOf(near.picture)}</span>`}</div><//>`)}</ul></div>`)}
    </li>`)}</ul>
  </section>`;
}

export function Recipe() {
  const { facts, yaml } = content.recipe;
  return html`<section class="part" id="recipe">
    <h2>What was trained</h2>
    <dl class="recipe-facts">${Object.entries(facts).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    <details><summary>The whole recipe</summary><pre>${yaml}</pre></details>
  </section>`;
}
