// Words to search for, where the model has a text tower: alone, or mixed with the picture that asks.
import { html } from "./html.js";
import { about, change, search } from "./state.js";

export function Words() {
  if (!about.value?.words) return null;
  const { text, weight, id, uploads, like } = search.value;
  const submit = (event) => {
    event.preventDefault();
    const typed = String(new FormData(event.target).get("text")).trim();
    change({ view: "search", text: typed });
  };
  const mixed = Boolean(text && (id || uploads.length || like.length));
  return html`<form class="words" role="search" aria-label="Search by words" onSubmit=${submit}>
    <input name="text" id="words" type="search" value=${text} maxlength="1000" autocomplete="off" enterkeyhint="search"
      aria-label="Words" placeholder=${id || uploads.length ? "and words: in red" : "Describe it: red mug"}
      onSearch=${(event) => !event.target.value && change({ text: "" })} />
    <button class="primary">Search</button>
    ${mixed && html`<label class="mix"><span>picture</span><input id="text-weight" type="range" min="0" max="1" step="0.05" value=${weight}
      aria-label="How much the words weigh" onChange=${(event) => change({ weight: Number(event.target.value) })} /><span>words</span></label>`}
  </form>`;
}
