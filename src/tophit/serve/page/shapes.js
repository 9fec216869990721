// The shapes of a map: the disc of a point, and the lasso around some.

/** The pixels of a disc: places from its centre, and how much of each the disc covers, from 0 to 1. */
export function disc(radius) {
  const pixels = [];
  const reach = Math.ceil(radius);
  for (let x = -reach; x <= reach; x++) {
    for (let y = -reach; y <= reach; y++) {
      const covered = Math.min(1, radius + 0.5 - Math.hypot(x, y));
      if (covered > 0.1) pixels.push([x, y, covered]);
    }
  }
  return pixels;
}

/** Whether a point lies inside a polygon of [x, y] corners, by the even-odd rule. */
export function inside(polygon, x, y) {
  let within = false;
  for (let i = 0, j = polygon.length - 1; i < polygon.length; j = i++) {
    const [xi, yi] = polygon[i];
    const [xj, yj] = polygon[j];
    if (yi > y !== yj > y && x < ((xj - xi) * (y - yi)) / (yj - yi) + xi) within = !within;
  }
  return within;
}
