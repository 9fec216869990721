// The picture of an item, cut to a square unless it is too long for that.
import { html } from "./html.js";
import { picture } from "./api.js";

const LONG = 1.8; // a side this many times the other: the picture is shown whole, not cut to a square

function fit(event) {
  const { naturalWidth: width, naturalHeight: height } = event.target;
  event.target.classList.toggle("whole", Math.max(width, height) > LONG * Math.min(width, height));
}

/** @param {{item: any, size?: 160|320, lazy?: boolean}} props */
export function Picture({ item, size = 320 }) {
  const source = picture(item, size);
  return source
    ? html`<img src=${source} alt="" loading="lazy" decoding="async" draggable=${false} onLoad=${fit} />`
    : html`<span class="no-picture" aria-hidden="true">${(item.label ?? item.id ?? "?").slice(0, 2)}</span>`;
}
