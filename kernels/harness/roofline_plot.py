"""Draws a roofline plot: how close each matmul variant comes to the limits of the device."""

from collections.abc import Callable, Sequence
from html import escape
from math import log10

from kernels.harness.launch_timing import DevicePeaks
from kernels.harness.matmul_bench import MatmulRow

WIDTH, HEIGHT, EDGE = 860, 520, 70
LEGEND_WIDTH = 120  # right of the plot
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
ToPixels = Callable[[float, float], tuple[float, float]]


def roofline_svg(rows: Sequence[MatmulRow], peaks: DevicePeaks, title: str) -> str:
    """Plot GFLOPS by wall time over arithmetic intensity (n/6 for a square product of n)."""
    points = [
        (row.shape.n / 6, row.gflops(variant), variant, row.shape.n)
        for row in rows
        for variant in row.times
    ]
    x_range = _decades([x for x, *_ in points])
    y_range = _decades([y for _, y, *_ in points] + [peaks.gflops])

    def at(x: float, y: float) -> tuple[float, float]:
        across = (log10(x) - x_range[0]) / (x_range[1] - x_range[0])
        up = (log10(y) - y_range[0]) / (y_range[1] - y_range[0])
        return EDGE + across * (WIDTH - 2 * EDGE - LEGEND_WIDTH), HEIGHT - EDGE - up * (
            HEIGHT - 2 * EDGE
        )

    parts = [*_frame(title, x_range, y_range, at), *_roof(peaks, x_range, at)]
    for variant, colour in COLOURS.items():
        line_points = sorted((x, y, n) for x, y, name, n in points if name == variant)
        if not line_points:
            continue
        line = " ".join(f"{px:.1f},{py:.1f}" for px, py in (at(x, y) for x, y, _ in line_points))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}"/>')
        for x, y, n in line_points:
            px, py = at(x, y)
            parts.append(
                f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3.5" fill="{colour}">'
                f"<title>{variant}, n = {n}: {y:.1f} GFLOPS</title></circle>"
            )
    parts += _legend([name for name in COLOURS if any(name == point[2] for point in points)])
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def _decades(values: Sequence[float]) -> Range:
    low, high = log10(min(values)), log10(max(values))
    return low - 0.15, high + 0.15


def _frame(title: str, across: Range, up: Range, at: ToPixels) -> list[str]:
    left, bottom = at(10 ** across[0], 10 ** up[0])
    right, top = at(10 ** across[1], 10 ** up[1])
    parts = [
        f'<text x="{EDGE}" y="28" font-size="15">{escape(title)}</text>',
        f'<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="black"/>',
        f'<text x="{(left + right) / 2:.0f}" y="{HEIGHT - 22}" text-anchor="middle">'
        "FLOPs per byte, if every matrix is loaded once</text>",
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


def _roof(peaks: DevicePeaks, across: Range, at: ToPixels) -> list[str]:
    """Draw the roof: rising with memory bandwidth, flat at peak arithmetic."""
    knee = peaks.gflops / peaks.gbytes_per_s
    first, last = 10 ** across[0], 10 ** across[1]
    corners = [(x, min(peaks.gflops, x * peaks.gbytes_per_s)) for x in sorted({first, knee, last})]
    inside = [corner for corner in corners if first <= corner[0] <= last]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*corner) for corner in inside))
    x, y = at(*inside[-1])
    return [
        f'<polyline points="{line}" fill="none" stroke="black" stroke-width="2"/>',
        f'<text x="{x:.0f}" y="{y - 8:.0f}" text-anchor="end">measured roof: '
        f"{peaks.gflops:.0f} GFLOPS, {peaks.gbytes_per_s:.1f} GB/s</text>",
    ]


def _legend(variants: Sequence[str]) -> list[str]:
    parts = []
    for number, variant in enumerate(variants):
        y = HEIGHT - EDGE - 18 * (len(variants) - number)
        x = WIDTH - EDGE - LEGEND_WIDTH + 20
        parts.append(f'<circle cx="{x}" cy="{y - 4}" r="4" fill="{COLOURS[variant]}"/>')
        parts.append(f'<text x="{x + 12}" y="{y}">{variant}</text>')
    return parts


def _ticks(span: Range) -> list[float]:
    ticks = [mark * 10.0**power for power in range(-3, 7) for mark in (1, 2, 5)]
    return [tick for tick in ticks if span[0] <= log10(tick) <= span[1]]
