// Chances: how likely a result is right, how likely results must be, and the answer that nothing is like the query.
import { html } from "./html.js";
import { about, change, search, tellsChances } from "./state.js";

const LEASTS = { 0: "all, however unlikely", 0.25: "25% likely or more", 0.5: "50% likely or more", 0.75: "75% likely or more", 0.9: "90% likely or more" };
const DOUBT = 0.5; // below this the best result is more likely wrong than right

/** @param {number} chance */
export const percent = (chance) => (chance > 0.99 ? ">99%" : chance < 0.01 ? "<1%" : `${Math.round(100 * chance)}%`);

/** The chance of a result: a word of colour for those that are likely, plain for the rest. */
export const Chance = ({ value }) =>
  value != null && html`<span class="chance ${value >= DOUBT ? "likely" : ""}" title="The chance that this is right">${percent(value)}</span>`;

/** Choose how likely results must be. */
export function LeastChance() {
  if (!about.value?.calibration) return null;
  const { least } = search.value;
  const choices = least in LEASTS ? LEASTS : { ...LEASTS, [least]: `${percent(least)} likely or more` };
  const possible = tellsChances(search.value);
  return html`<label title=${possible ? about.value.calibration.sentences.join("\n") : "Chances are for single pictures in the order found."}>
    Show <select id="least" value=${String(least)} disabled=${!possible} onChange=${(event) => change({ least: Number(event.target.value) })}>
      ${Object.entries(choices).sort((a, b) => Number(a[0]) - Number(b[0])).map(([value, words]) => html`<option value=${value}>${words}</option>`)}</select></label>`;
}

/** The answer that nothing is like the query. */
export function Nothing({ found }) {
  const { least } = search.value;
  const [best, wanted] = [found.best_chance ?? 0, least].map((one) =>
    percent(found.best_chance ?? 0) === percent(least) ? `${(100 * one).toFixed(2)}%` : percent(one)); // never 50%, less than 50%
  return html`<section class="nothing" aria-label="No result">
    <svg viewBox="0 0 48 48" width="56" height="56" aria-hidden="true"><circle cx="20" cy="20" r="13" /><path d="M30 30 L43 43 M14 20 H26" /></svg>
    <h1>${found.best_chance >= DOUBT ? "Nothing here is likely enough" : "Nothing here is like this"}</h1>
    <p>${found.best_chance == null ? found.reason : html`The best of all results is right with a chance of <b>${best}</b>${" "}
      (score ${found.best_score.toFixed(2)}), less than the ${wanted} you asked for.`}</p>
    ${found.best_chance != null && html`<p><button class="primary" onClick=${() => change({ least: 0 })}>Show the nearest anyway</button></p>`}
  </section>`;
}

/** A note above results that are all more likely wrong than right. */
export function Doubt({ results }) {
  if (results[0]?.chance == null) return null;
  const best = Math.max(...results.map(({ chance }) => chance ?? 0));
  if (best >= DOUBT) return null;
  return html`<p class="doubt" role="note"><b>Not sure.</b> The likeliest result is right with a chance of ${percent(best)}<span class="wide">; there may be nothing here like this</span>.</p>`;
}
