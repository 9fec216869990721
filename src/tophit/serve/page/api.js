// Calls of the server. Every failure becomes an Error whose message is the server's own sentence.

/** @typedef {{id: string, label: string|null, metadata: Object<string, any>, thumbnail: string|null}} Item */
/** @typedef {Item & {rank: number, score: number, correct?: boolean}} Result */

/** A server that wants a token answers 401; the page then asks for one. */
export class NeedsToken extends Error {}

/**
 * @param {string} path
 * @param {RequestInit} [options]
 * @returns {Promise<Response>}
 */
async function call(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server can't be reached.");
  }
  if (response.ok) return response;
  const told = await response.json().catch(() => ({}));
  const sentence = told.error || `The server answered ${response.status}.`;
  throw response.status === 401 ? new NeedsToken(sentence) : new Error(sentence);
}

/** @param {string} path */
export const get = async (path) => (await call(path)).json();

/** @param {string} path */
export const getBinary = async (path) => (await call(path)).arrayBuffer();

/**
 * @param {string} path
 * @param {object} body
 * @param {AbortSignal} [signal]
 */
export async function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return (await call(path, { method: "POST", headers, body: JSON.stringify(body), signal })).json();
}

/**
 * Search with pictures from the user's machine.
 * @param {File[]} files
 * @param {object} query
 */
export async function postFiles(files, query) {
  const form = new FormData();
  for (const file of files) form.append("files", file, "picture"); // its name is nobody's business
  form.append("query", JSON.stringify(query));
  return (await call("/search", { method: "POST", body: form })).json();
}

/**
 * Ask until the answer is ready; the server makes maps and lists of worst queries in the background.
 * @param {string} path
 * @param {(answer: any) => boolean} [goOn]
 */
export async function getWhenReady(path, goOn = () => true) {
  for (;;) {
    const answer = await get(path);
    if (answer.state === "ready" || !goOn(answer)) return answer;
    await new Promise((done) => setTimeout(done, 700));
  }
}

/**
 * @param {Item|{thumbnail?: string|null}} item
 * @param {160|320|1024} size
 */
export function picture(item, size) {
  if (!item?.thumbnail) return null;
  return item.thumbnail.startsWith("/uploads/") ? item.thumbnail : `${item.thumbnail}?size=${size}`;
}
