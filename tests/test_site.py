"""The documentation as a site, its curves, and the film of `farm watch`."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.text import Text

from docs import curves
from docs.generate import rendered, table
from docs.pictures import film
from docs.site import build

ROOT = Path(__file__).resolve().parents[1]
LOADED = re.compile(
    r"<(?:script|img|iframe)[^>]*\bsrc=\"(https?:)?//|<link[^>]*\bhref=\"(https?:)?//"
)
SVG = "{http://www.w3.org/2000/svg}"


def test_the_site_is_built_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    site = tmp_path / "site"
    assert build(site) > 100  # strict: a link or a page of the menu without a target is an error
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    loaded = re.compile(r"url\(['\"]?https?:|@import")
    for page in pages:
        text = page.read_text()
        assert not LOADED.search(text), page
        assert not loaded.search(text), page
    assert "farm sweep submit" in (site / "docs/reference/cli/index.html").read_text()


def test_the_curves_are_up_to_date() -> None:
    drawn = curves.render_curves()
    assert {f"{name}.svg" for name in drawn} == {path.name for path in curves.FOLDER.iterdir()}
    for name, content in drawn.items():
        assert (curves.FOLDER / f"{name}.svg").read_text() == content, "run ./farm docs"


def test_a_generator_that_finds_nothing_fails() -> None:
    with pytest.raises(LookupError, match="has no rows"):
        table(("a", "b"), [])
    with pytest.raises(LookupError, match="block x is empty"):
        rendered("<!-- generated: x -->\n<!-- end -->", {"x": lambda: " "})
    with pytest.raises(LookupError, match="without points"):
        curves.drawn("title", "x", "y", {"empty": []}, "stamp")


def test_a_film_stores_a_line_once_and_shows_every_frame() -> None:
    title, low, high = (
        Text("farm watch", "bold red"),
        Text("1/2 <runs>"),
        Text("2/2 runs", "reverse"),
    )
    root = ElementTree.fromstring(film([[title, low], [title, high]]))
    stored = root.findall(f"{SVG}defs/{SVG}g")
    assert ["".join(line.itertext()) for line in stored] == ["farm watch", "1/2 <runs>", "2/2 runs"]
    frames = [group for group in root.iter(f"{SVG}g") if group.get("class") == "f"]
    assert [[use.get("href") for use in frame] for frame in frames] == [
        ["#l0", "#l1"],
        ["#l0", "#l2"],
    ]
    red, _, inverse = (line[0] for line in stored)
    assert red.get("font-weight") == "bold"
    assert inverse.tag == f"{SVG}rect"
