// How an item moved from one ranking to another: up 3, down 7, new, lost. The report uses this too.

/** @param {number|null|undefined} change */
export function words(change) {
  if (change === null) return "new";
  if (!change) return "same";
  return change > 0 ? `up ${change}` : `down ${-change}`;
}
export const kind = (change) => (change === null ? "new" : !change ? "same" : change > 0 ? "up" : "down");
export const sign = { up: "▲ ", down: "▼ ", new: "✦ ", lost: "✕ ", same: "= " };
