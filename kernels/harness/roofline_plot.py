"""The roofline: how near each way comes to what the device can do, as a picture."""

from collections.abc import Callable, Sequence
from html import escape
from math import log10

from kernels.harness.bench import Row
from kernels.harness.timing import Roofs

WIDTH, HEIGHT, EDGE = 860, 520, 70
BESIDE = 120  # room for the legend, right of everything
COLOURS = {
    "naive": "#8c8c8c",
    "vector": "#b07aa1",
    "tiled": "#9c755f",
    "tiled_vector": "#f28e2b",
    "direct": "#59a14f",
    "dots": "#edc948",
    "packed": "#4e79a7",
    "image": "#76b7b2",
    "half": "#e15759",
    "tuned": "#000000",
}


Range = tuple[float, float]  # powers of ten
Place = Callable[[float, float], tuple[float, float]]


def roofline_svg(rows: Sequence[Row], roofs: Roofs, title: str) -> str:
    """GFLOPS by wall time over arithmetic intensity (n/6 for a square product of n)."""
    points = [
        (row.shape.n / 6, row.gflops(way), way, row.shape.n) for row in rows for way in row.timed
    ]
    x_range = _decades([x for x, *_ in points])
    y_range = _decades([y for _, y, *_ in points] + [roofs.gflops])

    def at(x: float, y: float) -> tuple[float, float]:
        across = (log10(x) - x_range[0]) / (x_range[1] - x_range[0])
        up = (log10(y) - y_range[0]) / (y_range[1] - y_range[0])
        return EDGE + across * (WIDTH - 2 * EDGE - BESIDE), HEIGHT - EDGE - up * (HEIGHT - 2 * EDGE)

    parts = [*_frame(title, x_range, y_range, at), *_roof(roofs, x_range, at)]
    for way, colour in COLOURS.items():
        mine = sorted((x, y, n) for x, y, name, n in points if name == way)
        if not mine:
            continue
        line = " ".join(f"{px:.1f},{py:.1f}" for px, py in (at(x, y) for x, y, _ in mine))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}"/>')
        for x, y, n in mine:
            px, py = at(x, y)
            parts.append(
                f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3.5" fill="{colour}">'
                f"<title>{way}, n = {n}: {y:.1f} GFLOPS</title></circle>"
            )
    parts += _legend([way for way in COLOURS if any(way == name for *_, name, _ in points)])
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def _decades(values: Sequence[float]) -> Range:
    low, high = log10(min(values)), log10(max(values))
    return low - 0.15, high + 0.15


def _frame(title: str, across: Range, up: Range, at: Place) -> list[str]:
    left, bottom = at(10 ** across[0], 10 ** up[0])
    right, top = at(10 ** across[1], 10 ** up[1])
    parts = [
        f'<text x="{EDGE}" y="28" font-size="15">{escape(title)}</text>',
        f'<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="black"/>',
        f'<text x="{(left + right) / 2:.0f}" y="{HEIGHT - 22}" text-anchor="middle">'
        "FLOPs a byte, if every matrix is fetched once</text>",
        f'<text x="18" y="{(top + bottom) / 2:.0f}" text-anchor="middle" '
        f'transform="rotate(-90 18 {(top + bottom) / 2:.0f})">GFLOPS</text>',
    ]
    for tick in _ticks(across):
        x, _ = at(tick, 10 ** up[0])
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{tick:g}</text>')
        parts.append(f'<path d="M{x:.1f} {top}V{bottom}" stroke="#e5e5e5"/>')
    for tick in _ticks(up):
        _, y = at(10 ** across[0], tick)
        parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
        parts.append(f'<path d="M{left} {y:.1f}H{right}" stroke="#e5e5e5"/>')
    return parts


def _roof(roofs: Roofs, across: Range, at: Place) -> list[str]:
    """Rising with what memory can bring, flat at what can be computed."""
    knee = roofs.gflops / roofs.gbytes_per_s
    first, last = 10 ** across[0], 10 ** across[1]
    corners = [(x, min(roofs.gflops, x * roofs.gbytes_per_s)) for x in sorted({first, knee, last})]
    inside = [corner for corner in corners if first <= corner[0] <= last]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*corner) for corner in inside))
    x, y = at(*inside[-1])
    return [
        f'<polyline points="{line}" fill="none" stroke="black" stroke-width="2"/>',
        f'<text x="{x:.0f}" y="{y - 8:.0f}" text-anchor="end">measured roof: '
        f"{roofs.gflops:.0f} GFLOPS, {roofs.gbytes_per_s:.1f} GB/s</text>",
    ]


def _legend(ways: Sequence[str]) -> list[str]:
    parts = []
    for at, way in enumerate(ways):
        y = HEIGHT - EDGE - 18 * (len(ways) - at)
        parts.append(
            f'<circle cx="{WIDTH - EDGE - BESIDE + 20}" cy="{y - 4}" r="4" fill="{COLOURS[way]}"/>'
        )
        parts.append(f'<text x="{WIDTH - EDGE - BESIDE + 32}" y="{y}">{way}</text>')
    return parts


def _ticks(span: Range) -> list[float]:
    every = [mark * 10.0**power for power in range(-3, 7) for mark in (1, 2, 5)]
    return [tick for tick in every if span[0] <= log10(tick) <= span[1]]
