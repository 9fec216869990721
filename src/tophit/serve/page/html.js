// Preact with htm: markup as tagged templates, so that nothing has to be built.
import { h } from "preact";
import htm from "htm";

export const html = htm.bind(h);

/** A name that breaks after its separators and not inside a word or number. */
export const breakable = (name) => String(name).split(/(?<=[/_-])|(?<=\.)(?!\d)/).map((part, place) => (place ? [html`<wbr />`, part] : part));
