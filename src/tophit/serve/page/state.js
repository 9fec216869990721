// The whole state of a search lives in the address, so that a link, a reload and the back button bring it back.
import { signal } from "@preact/signals";
import { NeedsToken, get, getWhenReady, post, postFiles } from "./api.js";

/**
 * @typedef {Object} Search
 * @property {"search"|"map"|"worst"} view
 * @property {string} id         the item to search from
 * @property {string[]} uploads  pictures the server keeps
 * @property {number[]|null} box x1, y1, x2, y2 as fractions of the picture
 * @property {string[]} like
 * @property {string[]} unlike
 * @property {Object<string, any>} where
 * @property {number} k
 * @property {string} rerank
 * @property {string} group      the field that groups results, or ""
 * @property {number} least      the least chance of a result, 0 for any
 * @property {boolean} compare
 * @property {string} text       words to search for, or ""
 * @property {number} weight     how much they weigh beside pictures, 0 to 1
 */

/** @type {Search} */
const EMPTY = {
  view: "search", id: "", uploads: [], box: null, like: [], unlike: [], where: {}, k: 24, rerank: "", group: "", least: 0, compare: false, text: "", weight: 0.5,
};

export const search = signal(readAddress());
export const about = signal(null);
export const answer = signal(null); // of /search or /compare
export const sample = signal([]);
export const busy = signal(false);
export const notice = signal({ text: "", error: false });
export const needsToken = signal(false);

/** @returns {Search} */
export function readAddress() {
  const given = new URLSearchParams(location.search);
  const box = (given.get("box") || "").split(",").map(Number);
  let where = {};
  try {
    where = JSON.parse(given.get("where") || "{}");
  } catch {
    where = {};
  }
  const view = given.get("view");
  return {
    view: view === "map" || view === "worst" ? view : "search",
    id: given.get("id") || "",
    uploads: given.getAll("upload"),
    box: box.length === 4 && box.every(Number.isFinite) ? box : null,
    like: given.getAll("like"),
    unlike: given.getAll("unlike"),
    where,
    k: Math.max(1, Number.parseInt(given.get("k") || "", 10) || EMPTY.k),
    rerank: given.get("rerank") || "",
    group: given.get("group") || "",
    least: Math.min(1, Math.max(0, Number.parseFloat(given.get("least") || "") || 0)),
    compare: given.get("compare") === "1",
    text: given.get("text") || "",
    weight: share(given.get("weight")),
  };
}

/** A number from 0 to 1 as written in the address; without one, half. */
function share(text) {
  const value = Number.parseFloat(text ?? "");
  return value >= 0 && value <= 1 ? value : EMPTY.weight;
}

/** @param {Search} state */
export function address(state) {
  const told = new URLSearchParams();
  if (state.view !== "search") told.set("view", state.view);
  if (state.id) told.set("id", state.id);
  for (const name of state.uploads) told.append("upload", name);
  if (state.box) told.set("box", state.box.map((value) => value.toFixed(4)).join(","));
  for (const name of state.like) told.append("like", name);
  for (const name of state.unlike) told.append("unlike", name);
  if (Object.keys(state.where).length) told.set("where", JSON.stringify(state.where));
  if (state.k !== EMPTY.k) told.set("k", String(state.k));
  if (state.rerank) told.set("rerank", state.rerank);
  if (state.group) told.set("group", state.group);
  if (state.least) told.set("least", String(state.least));
  if (state.compare) told.set("compare", "1");
  if (state.text) told.set("text", state.text);
  if (state.text && state.weight !== EMPTY.weight) told.set("weight", String(state.weight));
  const text = told.toString();
  return text ? `/?${text}` : "/";
}

/** @param {Partial<Search>} changes */
export function change(changes) {
  const next = { ...search.value, ...changes };
  if (address(next) !== address(search.value)) history.pushState(null, "", address(next));
  search.value = next;
}

/** Search from an item: a new question, so what steered the old one goes. */
export const searchFrom = (id) => change({ view: "search", id, uploads: [], box: null, like: [], unlike: [], text: "" });

export const startOver = () => change({ ...EMPTY, where: search.value.where, k: search.value.k, group: search.value.group, least: search.value.least, compare: search.value.compare });

/**
 * Like or dislike an item; the same again takes it back.
 * @param {"like"|"unlike"} side
 * @param {string} id
 */
export function steer(side, id) {
  const other = side === "like" ? "unlike" : "like";
  const now = search.value[side];
  change({
    [side]: now.includes(id) ? now.filter((one) => one !== id) : [...now, id],
    [other]: search.value[other].filter((one) => one !== id),
  });
}

/** @param {Search} state */
export const hasQuery = (state) => Boolean(state.id || state.uploads.length || state.like.length || state.text);

/** Whether results of this search have chances: those of single pictures, in the order found. */
export const tellsChances = (state) =>
  Boolean(about.value?.calibration) && !state.compare && !state.rerank && !state.text && state.uploads.length < 2 && !state.like.length && !state.unlike.length;

/** @param {Search} state */
function request(state) {
  return {
    ids: state.id ? [state.id] : [],
    uploads: state.uploads,
    box: state.box,
    like: state.like,
    unlike: state.unlike,
    together: state.uploads.length > 1,
    where: Object.keys(state.where).length ? state.where : null,
    k: state.k,
    rerank: state.rerank ? [state.rerank] : [],
    ...(state.text && { text: state.text, text_weight: state.weight }),
    group_by: (!state.compare && state.group) || null, // two models are compared picture by picture
    min_chance: (tellsChances(state) && state.least) || null,
  };
}

/**
 * The rest of a result's group, nearest first: the same search among the group.
 * @param {any} item
 */
export async function othersOf(item) {
  const state = search.value;
  const group = { ...state.where, [state.group]: item.metadata[state.group] };
  const k = Math.min(item.others + 1, about.value.limits.k);
  const found = await post("/search", { ...request(state), where: group, k, rerank: [], group_by: null, min_chance: null });
  const others = found.queries[0].results.filter((one) => one.id !== item.id);
  return others.map(({ rank, ...one }) => one); // their ranks are among the group only
}

/** Show on the start page items that meet the filter: those nearest to the first of the usual ones. */
async function narrowSample() {
  const { where } = search.value;
  let shown = usual;
  if (Object.keys(where).length && usual.length) {
    const found = await post("/search", { ids: [usual[0].id], where, k: usual.length });
    shown = found.queries[0].results.map(({ rank, score, chance, ...item }) => item);
  }
  if (where === search.value.where) sample.value = shown; // else an answer came late
}

let usual = []; // items of the start page without a filter
let running = null;
let asked = "";

/** @param {Search} state */
const question = (state) => JSON.stringify([state.compare, request(state)]);

/** Search by the state, unless that is what the answer on the page already is. */
export async function runSearch() {
  const state = search.value;
  if (!hasQuery(state)) {
    running?.abort();
    asked = "";
    answer.value = null;
    busy.value = false;
    narrowSample().catch(fail);
    return;
  }
  if (question(state) === asked) return;
  asked = question(state);
  running?.abort();
  const own = (running = new AbortController());
  busy.value = true;
  try {
    const compare = state.compare && about.value?.against;
    answer.value = await post(compare ? "/compare" : "/search", request(state), own.signal);
    useItsName(answer.value);
    say(summary(answer.value));
  } catch (error) {
    if (error.name === "AbortError") return;
    asked = "";
    answer.value = null;
    fail(error);
  } finally {
    if (running === own) busy.value = false;
  }
}

/**
 * Call the item of the query what the server calls it: an address typed by hand may hold its whole path.
 * @param {any} found
 */
function useItsName(found) {
  const query = found.queries?.[0].query ?? found.query;
  const { id } = query.of?.[0] ?? query;
  if (!search.value.id || !id || search.value.id === id) return;
  const named = { ...search.value, id };
  asked = question(named);
  history.replaceState(null, "", address(named));
  search.value = named;
}

/** @param {any} found */
function summary(found) {
  const results = found.queries ? found.queries[0].results : found.second.results;
  const first = results[0];
  if (!first) return found.queries?.[0].reason ?? "Nothing found. A filter may be too narrow.";
  return `${results.length} ${search.value.group ? "groups" : "results"}. First: ${first.label ?? first.id}, score ${first.score.toFixed(2)}.`;
}

/** @param {File[]} files */
export async function searchFiles(files) {
  const pictures = files.filter((file) => file.type.startsWith("image/") || !file.type);
  if (!pictures.length) return fail(new Error("That is not a picture. Use JPEG, PNG, WebP, or another kind of image file."));
  busy.value = true;
  try {
    const found = await postFiles(pictures, { k: 1, together: false });
    const uploads = found.queries.map((one) => one.query.upload);
    change({ view: "search", id: "", uploads, box: null, like: [], unlike: [] });
  } catch (error) {
    fail(error);
  } finally {
    busy.value = false;
  }
}

/** @param {string} text */
export const say = (text) => (notice.value = { text, error: false });

/** @param {Error} error */
export function fail(error) {
  if (error instanceof NeedsToken) needsToken.value = true;
  else notice.value = { text: error.message, error: true };
}

/** Learn what is served; again after a token was given. */
export async function begin() {
  try {
    about.value = await get("/about");
    document.title = `${about.value.name} · Tophit`;
    usual = (await get("/items")).items;
    sample.value = usual;
    needsToken.value = false;
    asked = "";
    await runSearch();
  } catch (error) {
    fail(error);
  }
}

/** @param {string} token */
export async function giveToken(token) {
  await post("/session", { token });
  await begin();
}

export { getWhenReady };
