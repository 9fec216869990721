// A part of the report: folded, so that the first screen says the most important; its line says what is inside.
import { html } from "./html.js";

/** Open a part and go there. */
export function openPart(id) {
  const part = document.getElementById(id);
  if (part?.matches("details")) part.open = true;
  part?.scrollIntoView();
}

/** @param {{id: string, title: string, brief: any, kind?: string, children: any}} props  `brief` is what the folded part tells */
export function Part({ id, title, brief, kind = "", children, ...rest }) {
  return html`<details class="part ${kind}" id=${id} ...${rest}>
    <summary><h2>${title}</h2><span class="brief">${brief}</span></summary>
    <div class="inner">${children}</div>
  </details>`;
}
