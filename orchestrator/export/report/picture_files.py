"""Writes pictures as SVG for a page, and as files that a paper can include: SVG, PDF and PNG.

PDF and PNG are drawn with matplotlib, from the same lines and texts, with the fonts inside.
"""

import html
import io
from typing import Any

from markupsafe import Markup

from orchestrator.export.report.figure import NARROW, STYLES, Figure, Item, Picture, join_panels
from workloads.protocol.faults import InvalidRequest

COLUMN_MM = 85.0  # of a paper with two columns
POINTS = COLUMN_MM / 25.4 * 72 / NARROW  # of one unit of a picture
PNG_DPI = 600
FONT = "Helvetica, Arial, 'DejaVu Sans', sans-serif"
FILE_KINDS = ("pdf", "svg", "png")


def page_svg(picture: Picture, label: str, kind: str = "") -> Markup:
    """Return a picture for a page, which has the styles."""
    size = f'viewBox="0 0 {_number(picture.width)} {_number(picture.height)}"'
    size += f' width="{_number(picture.width)}"'
    css = f' class="{kind}"' if kind else ""
    label = html.escape(label)
    # Every text passes html.escape().
    return Markup(f'<svg {size}{css} role="img" aria-label="{label}">{_body(picture)}</svg>')


def page_css() -> str:
    """Return the styles of pictures on a page, light and dark."""
    light = "".join(f"svg .{name}{{{_rule(name)}}}" for name in STYLES)
    dark = "".join(
        f"svg .{name}{{{'stroke' if _is_line(name) else 'fill'}:{style.dark}}}"
        for name, style in STYLES.items()
        if style.dark
    )
    return f"{light}@media(prefers-color-scheme:dark){{{dark}}}"


def figure_file(figure: Figure, kind: str, stamp: str) -> bytes:
    """Return a figure as a file at the width of a paper's column, with its source inside."""
    picture = join_panels(figure, stamp)
    if kind == "svg":
        return saved_svg(picture, figure.title).encode()
    return _draw_with_matplotlib(picture, kind)


def saved_svg(picture: Picture, title: str) -> str:
    """Return a picture as an SVG file, with its style inside."""
    used = dict.fromkeys(item.style for item in picture.items)
    rules = "".join(f".{name}{{{_rule(name)}}}" for name in used)
    height = COLUMN_MM * picture.height / picture.width
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{COLUMN_MM:g}mm" height="{height:.1f}mm" '
        f'viewBox="0 0 {_number(picture.width)} {_number(picture.height)}" '
        f'font-family="{FONT}"><title>{html.escape(title)}</title><style>{rules}</style>'
        f"{_body(picture)}</svg>"
    )


def _is_line(name: str) -> bool:
    return STYLES[name].width > 0


def _rule(name: str) -> str:
    style = STYLES[name]
    if style.size:
        return f"fill:{style.colour};font-size:{style.size:g}px" + ";font-weight:600" * style.bold
    if not style.width:
        opacity = f";fill-opacity:{style.opacity:g}" if style.opacity < 1 else ""
        return f"fill:{style.colour}{opacity}"
    dash = f";stroke-dasharray:{style.dash}" if style.dash else ""
    return f"fill:none;stroke:{style.colour};stroke-width:{style.width:g}{dash}"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _body(picture: Picture) -> str:
    return "".join(map(_element, picture.items))


def _element(item: Item) -> str:
    x, y = item.points[0]
    if item.kind == "text":
        anchor = f' text-anchor="{item.anchor}"' if item.anchor != "start" else ""
        place = f'x="{_number(x)}" y="{_number(y)}" class="{item.style}"{anchor}'
        return f"<text {place}>{html.escape(item.text)}</text>"
    tip = f"<title>{html.escape(item.text)}</title>" if item.text else ""
    if item.kind == "dot":
        place = f'cx="{_number(x)}" cy="{_number(y)}" r="{item.radius:g}" class="{item.style}"'
        return f"<circle {place}>{tip}</circle>" if tip else f"<circle {place}/>"
    path = "M" + "L".join(f"{_number(x)} {_number(y)}" for x, y in item.points)
    path += "Z" if item.kind == "area" else ""
    return f'<path d="{path}" class="{item.style}"' + (f">{tip}</path>" if tip else "/>")


def _draw_with_matplotlib(picture: Picture, kind: str) -> bytes:
    try:
        from matplotlib import rcParams
        from matplotlib.figure import Figure as Canvas
    except ImportError:
        raise InvalidRequest(
            f"a {kind.upper()} needs matplotlib, which is not installed; run: "
            ".venv/bin/pip install matplotlib, or name a file that ends with .svg"
        ) from None
    rcParams["pdf.fonttype"] = 42  # fonts that journals accept
    inches = (picture.width * POINTS / 72, picture.height * POINTS / 72)
    canvas = Canvas(figsize=inches)
    axes = canvas.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, picture.width)
    axes.set_ylim(picture.height, 0)
    axes.set_axis_off()
    for index, item in enumerate(picture.items):
        _draw_item(axes, item, index)
    stream = io.BytesIO()
    # Without a date, the same results give the same file.
    metadata = {"CreationDate": None} if kind == "pdf" else {}
    canvas.savefig(stream, format=kind, dpi=PNG_DPI, metadata=metadata)
    return stream.getvalue()


def _draw_item(axes: Any, item: Item, order: int) -> None:
    from matplotlib.patches import Circle, Polygon

    style, (x, y) = STYLES[item.style], item.points[0]
    match item.kind:
        case "text":
            side = {"start": "left", "middle": "center", "end": "right"}[item.anchor]
            weight = "bold" if style.bold else "normal"
            # `$` would begin a formula.
            text = item.text.replace("$", r"\$")
            size = style.size * POINTS
            font = {"size": size, "weight": weight, "color": style.colour, "zorder": order}
            axes.text(x, y, text, ha=side, va="baseline", **font)
        case "line":
            dash = [float(part) * POINTS for part in style.dash.split()]
            line = {"color": style.colour, "lw": style.width * POINTS, "zorder": order}
            (drawn,) = axes.plot(*zip(*item.points, strict=True), **line)
            if dash:
                drawn.set_dashes(dash)
        case "dot":
            axes.add_patch(Circle((x, y), item.radius, color=style.colour, lw=0, zorder=order))
        case _ if style.width:
            outline: dict[str, Any] = {"edgecolor": style.colour, "linewidth": style.width * POINTS}
            axes.add_patch(Polygon(item.points, fill=False, zorder=order, **outline))
        case _:
            fill: dict[str, Any] = {"color": style.colour, "alpha": style.opacity, "lw": 0}
            axes.add_patch(Polygon(item.points, zorder=order, **fill))
