"""Draw the pictures of docs/concepts.md: python docs/images/concepts.py. They are plain SVG, on white."""

import math
from pathlib import Path

FOLDER = Path(__file__).parent
INK, GREY, GREEN, RED, BLUE, ORANGE = "#14202b", "#8a94a0", "#168f3e", "#cc2929", "#1f6fb2", "#e08a1e"
COLOURS = (BLUE, ORANGE, GREEN, "#8e5bb5")


def text(x: float, y: float, words: str, size: int = 14, colour: str = INK, weight: str = "normal") -> str:
    """Return a line of text, centred at x."""
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="middle" font-size="{size}" fill="{colour}" '
        f'font-weight="{weight}">{words}</text>'
    )


def dot(x: float, y: float, colour: str, radius: float = 8) -> str:
    """Return an image: a filled circle in the colour of its class."""
    return f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="{colour}"/>'


def star(x: float, y: float, colour: str, radius: float = 13) -> str:
    """Return a proxy: a star."""
    points = (
        (x + r * math.sin(i * math.pi / 5), y - r * math.cos(i * math.pi / 5))
        for i in range(10)
        for r in [radius if i % 2 == 0 else radius * 0.45]
    )
    return f'<polygon points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in points)}" fill="{colour}" stroke="{INK}"/>'


def arrow(x1: float, y1: float, x2: float, y2: float, colour: str, both: bool = False) -> str:
    """Return an arrow that keeps clear of the dots at its ends."""
    length = math.hypot(x2 - x1, y2 - y1)
    dx, dy = (x2 - x1) / length * 13, (y2 - y1) / length * 13
    head = f'marker-end="url(#{colour[1:]})"' + (f' marker-start="url(#{colour[1:]})"' if both else "")
    return (
        f'<line x1="{x1 + dx:.1f}" y1="{y1 + dy:.1f}" x2="{x2 - dx:.1f}" y2="{y2 - dy:.1f}" stroke="{colour}" '
        f'stroke-width="2.2" {head}/>'
    )


def line(x1: float, y1: float, x2: float, y2: float, extra: str = "") -> str:
    """Return a grey line."""
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{GREY}" stroke-width="2" {extra}/>'


def path(where: str, colour: str, extra: str = "") -> str:
    """Return a curve."""
    return f'<path d="{where}" fill="none" stroke="{colour}" stroke-width="2.2" {extra}/>'


def box(x: float, y: float, width: float, height: float, fill: str = "#f3f6f8", stroke: str = "#d5dde3") -> str:
    """Return a rounded box."""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8" fill="{fill}" stroke="{stroke}"/>'


def write(name: str, width: int, height: int, parts: list[str], title: str) -> None:
    """Write a picture."""
    heads = "".join(
        f'<marker id="{colour[1:]}" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="6" markerHeight="6" '
        f'orient="auto-start-reverse"><path d="M0 0 10 5 0 10z" fill="{colour}"/></marker>'
        for colour in (GREEN, RED, GREY, BLUE)
    )
    body = "\n".join(parts)
    (FOLDER / f"concepts-{name}.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="system-ui, sans-serif" '
        f'role="img"><title>{title}</title><defs>{heads}</defs>\n<rect width="{width}" height="{height}" rx="6" '
        f'fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def losses() -> None:
    """Draw what each family of losses compares."""
    names = ("pairs", "triplets", "proxies", "rankings")
    said = ("two images at a time", "nearer than, by a margin", "images with their class", "the whole list of a query")
    parts = []
    for number, (name, words) in enumerate(zip(names, said, strict=True)):
        x = 10 + 215 * number
        parts += [box(x, 10, 205, 240), text(x + 102, 36, name, 17, weight="bold"), text(x + 102, 240, words, 13, GREY)]
    parts += [
        dot(50, 90, BLUE),
        dot(165, 90, BLUE),
        arrow(50, 90, 165, 90, GREEN, True),
        text(108, 78, "together", 12, GREEN),
    ]
    parts += [dot(90, 170, BLUE), dot(130, 170, ORANGE), arrow(90, 170, 40, 170, RED), arrow(130, 170, 180, 170, RED)]
    parts += [text(108, 200, "apart, to a margin", 12, RED)]
    a, p, n = (312, 130), (285, 80), (402, 162)
    parts += [f'<circle cx="312" cy="130" r="72" fill="none" stroke="{GREY}" stroke-dasharray="5 5"/>']
    parts += [dot(*a, BLUE), dot(*p, BLUE), dot(*n, ORANGE), arrow(*p, *a, GREEN), arrow(*a, *n, RED)]
    parts += [text(312, 156, "anchor", 12), text(278, 68, "positive", 12, GREEN), text(398, 190, "negative", 12, RED)]
    for x, y, colour in ((490, 100, BLUE), (600, 160, ORANGE)):
        parts += [star(x, y, colour)]
        for dx, dy in ((-28, -34), (34, -26), (-30, 34)):
            parts += [dot(x + dx, y + dy, colour), arrow(x + dx, y + dy, x, y, GREEN)]
    parts += [text(545, 216, "★ a proxy, which is learned", 12, GREY)]
    parts += [dot(680, 75, BLUE), text(708, 80, "query", 12)]
    for place, colour in enumerate((BLUE, ORANGE, BLUE, ORANGE, BLUE, ORANGE)):
        parts += [dot(685 + 30 * place, 130, colour), text(685 + 30 * place, 158, str(place + 1), 11, GREY)]
    parts += [path("M745 112 q-15 -30 -30 0", GREEN, f'marker-end="url(#{GREEN[1:]})"')]
    parts += [path("M805 112 q-30 -46 -60 0", GREEN, f'marker-end="url(#{GREEN[1:]})"')]
    parts += [text(757, 200, "right ones move forward", 12, GREEN)]
    write("losses", 870, 260, parts, "Four families of losses")


def miners() -> None:
    """Draw which negatives a miner takes, by distance from the anchor."""
    parts = [line(70, 110, 800, 110, f'marker-end="url(#{GREY[1:]})"')]
    parts += [text(800, 138, "distance", 13, GREY), dot(70, 110, BLUE, 11), text(70, 86, "anchor", 13)]
    parts += [dot(330, 110, BLUE, 11), text(330, 86, "positive", 13, GREEN)]
    parts += [
        line(480, 60, 480, 150, 'stroke-dasharray="5 5"'),
        text(480, 52, "positive + margin", 12, GREY),
    ]
    parts += [dot(x, 110, ORANGE) for x in (150, 200, 260, 380, 420, 455, 540, 600, 650, 720)]
    for low, high, words, colour in (
        (120, 310, "hard", RED),
        (350, 478, "semi-hard", BLUE),
        (500, 770, "easy: no gradient", GREY),
    ):
        parts += [path(f"M{low} 165 v10 h{high - low} v-10", colour)]
        parts += [text((low + high) / 2, 196, words, 14, colour, "bold")]
    parts += [
        text(
            435,
            226,
            "uniform: any of them · distance-weighted: all distances equally often · soft-hard: a random hard one",
            13,
            GREY,
        )
    ]
    write("miners", 870, 245, parts, "Which negatives a miner takes")


def batches() -> None:
    """Draw a random and a balanced batch."""
    parts = []
    mixed = (0, 2, 1, 3, 0, 0, 2, 1, 3, 3, 2, 0, 1, 2, 3, 1)
    for at, (name, order) in enumerate((("random", mixed), ("balanced: 4 classes x 4", [i // 4 for i in range(16)]))):
        x = 10 + 290 * at
        parts += [box(x, 10, 280, 190), text(x + 140, 36, name, 16, weight="bold")]
        parts += [dot(x + 65 + 50 * (i % 4), 70 + 34 * (i // 4), COLOURS[kind], 10) for i, kind in enumerate(order)]
    parts += [box(590, 10, 270, 190), text(725, 36, "representatives (PROFS)", 16, weight="bold")]
    for kind in range(4):
        y = 70 + 34 * kind
        parts += [f'<circle cx="640" cy="{y}" r="12" fill="{COLOURS[kind]}" stroke="{INK}" stroke-width="2.5"/>']
        parts += [dot(700 + 45 * i, y, COLOURS[kind], 10) for i in range(3)]
    parts += [
        text(150, 222, "for proxies: every image once", 13, GREY),
        text(440, 222, "for pairs, triplets and rankings", 13, GREY),
    ]
    parts += [text(725, 222, "the left ones stay for many batches", 13, GREY)]
    write("batches", 870, 236, parts, "Three ways to make a batch")


def methods() -> None:
    """Draw how each method makes a step."""
    rows = (
        ("plain", ("batch", "embed", "loss", "step")),
        ("projection (PROFS)", ("representatives", "embed", "loss of their pairs", "step, until near", "next ones")),
        ("generation (THSG)", ("batch", "embed", "stretch positives", "make hard negatives", "loss", "step")),
        ("daml, hdml", ("batch", "embed", "generator makes negatives", "loss", "step of both")),
    )
    parts = []
    for row, (name, steps) in enumerate(rows):
        y = 14 + 58 * row
        parts += [text(92, y + 27, name, 15, weight="bold")]
        x = 190.0
        for number, step in enumerate(steps):
            width = 22 + 7.0 * len(step)
            parts += [box(x, y, width, 42), text(x + width / 2, y + 26, step, 13)]
            if number + 1 < len(steps):
                parts += [line(x + width, y + 21, x + width + 14, y + 21)]
            x += width + 14
    write("methods", 920, 250, parts, "How a training step is made")


if __name__ == "__main__":
    losses()
    miners()
    batches()
    methods()
