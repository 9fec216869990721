// The query's picture, on which a box can be drawn: with the mouse, a finger, or the keyboard.
import { html } from "./html.js";
import { useEffect, useRef, useState } from "preact/hooks";

const clamp = (value) => Math.min(1, Math.max(0, value));
const SMALLEST = 0.03;

/**
 * @param {{source: string, box: number[]|null, onBox: (box: number[]|null) => void, name: string}} props
 */
export function Crop({ source, box, onBox, name }) {
  const frame = useRef(null);
  const [drawn, setDrawn] = useState(box);
  const start = useRef(null);
  const [ratio, setRatio] = useState(1); // the frame has the picture's shape, so that a place on it is one in the picture
  useEffect(() => setDrawn(box), [box?.join(), source]);

  const place = (event) => {
    const area = frame.current.getBoundingClientRect();
    return [clamp((event.clientX - area.left) / area.width), clamp((event.clientY - area.top) / area.height)];
  };
  const down = (event) => {
    if (event.button > 0) return;
    start.current = place(event);
    frame.current.setPointerCapture(event.pointerId);
    event.preventDefault();
    frame.current.focus();
  };
  const move = (event) => {
    if (!start.current) return;
    const [x, y] = place(event);
    const [a, b] = start.current;
    setDrawn([Math.min(a, x), Math.min(b, y), Math.max(a, x), Math.max(b, y)]);
  };
  const up = (event) => {
    if (!start.current) return;
    move(event);
    const [x, y] = place(event);
    const [a, b] = start.current;
    start.current = null;
    const made = [Math.min(a, x), Math.min(b, y), Math.max(a, x), Math.max(b, y)];
    const large = made[2] - made[0] > SMALLEST && made[3] - made[1] > SMALLEST;
    if (!large) setDrawn(null);
    onBox(large ? made : null); // a click takes the box away
  };
  /** Arrows move the box, with Shift they move its far corner; Enter searches, Escape takes it away. */
  const key = (event) => {
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key in steps) {
      const [x, y] = steps[event.key].map((value) => value * 0.02);
      const [x1, y1, x2, y2] = drawn || [0.25, 0.25, 0.75, 0.75];
      if (!drawn) setDrawn([x1, y1, x2, y2]);
      else if (event.shiftKey) setDrawn([x1, y1, clamp(Math.max(x1 + SMALLEST, x2 + x)), clamp(Math.max(y1 + SMALLEST, y2 + y))]);
      else if (x1 + x >= 0 && x2 + x <= 1 && y1 + y >= 0 && y2 + y <= 1) setDrawn([x1 + x, y1 + y, x2 + x, y2 + y]);
      event.preventDefault();
    } else if (event.key === "Enter" && drawn) onBox(drawn);
    else if (event.key === "Escape") {
      setDrawn(null);
      onBox(null);
    }
  };
  const [x1, y1, x2, y2] = drawn || [0, 0, 0, 0];
  const percent = (value) => `${100 * value}%`;
  return html`<div class="crop" ref=${frame} tabindex="0" role="application"
      aria-label="${name}. Draw a box to search by a part; arrow keys make and move it, Shift and arrows resize it, Enter searches, Escape removes it."
      style=${{ "--ratio": ratio }} onPointerDown=${down} onPointerMove=${move} onPointerUp=${up} onKeyDown=${key}>
    ${source && html`<img src=${source} alt=${name} draggable=${false} onLoad=${({ target }) => setRatio(target.naturalWidth / target.naturalHeight)} />`}
    ${drawn && html`<div class="box" style=${{ left: percent(x1), top: percent(y1), width: percent(x2 - x1), height: percent(y2 - y1) }}></div>`}
  </div>`;
}
