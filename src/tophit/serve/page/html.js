// Preact with htm: markup as tagged templates, so that nothing has to be built.
import { h } from "preact";
import htm from "htm";

export const html = htm.bind(h);
