"""Selectors: which phones match, and why the others do not."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.sweepfile.selector import BadSelector, parse_selector
from tests.analysis.builders import FITTED, LITTLE, phone
from workloads.protocol.metrics import Provenances
from workloads.protocol.phone_facts import ControlLevel, Gpu

SIMULATED = Provenances(time=FITTED, clock=FITTED, heat=FITTED, energy=None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("root", True),
        ("not root", False),
        ("simulated", False),
        ("ram_mb >= 8192", True),
        ("ram_mb > 8192", False),
        ("ram_mb < 8192.5", True),
        ("cores == 8", True),
        ("big = 4 and little = 4", True),
        ("model == 'model px*'", True),
        ("MODEL == MODEL?PX6-01", True),  # facts and texts are case-insensitive
        ("model != *px*", False),
        ("soc in (sdm855, sm83?0)", True),
        ("soc in (sdm855)", False),
        ("android >= 9", True),  # compared as numbers, not as texts
        ("android >= 14.1", False),
        ("control == controlled", True),
        ("control >= partial", True),
        ("control < partial", False),
        ("gpu == adreno*", True),
        ("source == phone", True),
        ("abi == arm64*", True),
        ("tag == paper", True),
        ("tag != paper", False),
        ("tag in (other, paper)", True),
        ("tag == other", False),
        ("px6-*", True),  # only a pattern: serial, model or SoC
        ("'root'", False),  # a quoted name is not a fact
        ("sm8350", True),
        # `not` binds closest, then `and`, then `or`
        ("not root or ram_mb > 1", True),
        ("not (root or ram_mb > 1)", False),
        ("root or simulated and simulated", True),
        ("(root or simulated) and simulated", False),
        ("not not root", True),
    ],
)
def test_a_selector_matches_phones(text: str, expected: bool) -> None:
    gpu = Gpu(name="Adreno 660", folder="/gpu", ladder_khz=())
    assert parse_selector(text).matches(phone("PX6-01", gpu=gpu), {"paper"}) == expected


@pytest.mark.parametrize(
    ("text", "changes", "expected"),
    [
        ("root and ram_mb >= 6000", {"ram_mb": 4096}, "ram_mb is 4096, not >= 6000"),
        ("root and ram_mb >= 6000", {"rooted": False}, "not root"),
        ("model == pixel*", {}, "model is Model a, not pixel*"),
        ("model != *a", {}, "model is Model a"),
        ("big >= 4", {"clusters": (LITTLE,)}, "big is 0, not >= 4"),
        ("soc in (x, y)", {}, "soc is sm8350, not x or y"),
        ("not root", {}, "it matches root"),
        ("tag == paper", {}, "it has no tag paper"),
        ("android > 12", {"android": "unknown"}, "android is unknown, not > 12"),
        ("control == controlled", {"control": ControlLevel.PARTIAL}, "control is partial, not c"),
        ("x or root", {"rooted": False}, "serial, model and soc do not match x; not root"),
        ("not simulated", {"provenance": SIMULATED}, "it matches simulated"),
        # a phone may report terminal escapes
        ("soc == x", {"soc": "sd\x1b[31m"}, "soc is sd[31m, not x"),
    ],
)
def test_a_phone_that_does_not_match_has_a_reason(
    text: str, changes: dict[str, Any], expected: str
) -> None:
    assert (parse_selector(text).why_not(phone("a", **changes)) or "").startswith(expected)


@pytest.mark.parametrize(
    ("text", "offset", "expected"),
    [
        ("", 0, "the selector is empty"),
        ("   ", 0, "the selector is empty"),
        ("root and", 8, "a fact, a pattern or '(' is expected here"),
        ("root ram_mb > 3", 5, "'ram_mb': 'and' or 'or' is missing before this"),
        ("(root", 5, "a ')' is missing"),
        ("root)", 4, "')': 'and' or 'or' is missing before this"),
        ("rot", 0, "'rot': did you mean 'root'?"),
        ("ram_gb > 6", 0, "unknown fact 'ram_gb'; did you mean 'ram_mb'?"),
        ("colour == red", 0, "unknown fact 'colour'; use one of serial, model"),
        ("ram_mb > many", 9, "'many': ram_mb is compared with a number"),
        ("android > Q", 10, "'Q': android is compared with a version such as 12"),
        ("control == full", 11, "'full': control is compared with one of observed, partial"),
        ("model > pixel", 6, "'>': model is text; compare it with == or !="),
        ("root == 1", 0, "'root' is true or false; write root or not root"),
        ("ram_mb", 0, "'ram_mb': this needs a comparison, for example ram_mb == ..."),
        ("tag", 0, "'tag': this needs a comparison"),
        ("soc in sdm855", 7, "'sdm855': write the values like (sdm855, sm8350)"),
        ("soc in (sdm855", 14, "a ')' is missing"),
        ("model == 'pixel", 9, "''': a quote is opened but never closed"),
        ("ram_mb == ", 10, "a value is expected here"),
        ("ram_mb ! 3", 7, "'!': unexpected character"),
        ("(" * 21 + "root", 20, "'(': nested deeper than 20"),
        ("not " * 21 + "root", 80, "'not': nested deeper than 20"),
        ("x" * 1001, 1000, "the selector is longer than 1000 characters"),
    ],
)
def test_a_mistake_has_its_location(text: str, offset: int, expected: str) -> None:
    with pytest.raises(BadSelector) as caught:
        parse_selector(text)
    assert str(caught.value).startswith(expected)
    assert caught.value.offset == offset


def test_equivalent_selectors_have_one_canonical_text() -> None:
    spellings = [
        "root and Ram_mb >= 6000",
        "ram_mb>=6000 and (root)",
        "(ram_mb >= '6000')  and root",
    ]
    assert len({str(parse_selector(spelling)) for spelling in spellings}) == 1


leaves = st.sampled_from(["root", "simulated", "ram_mb > 4000", "ram_mb > 9000", "tag == paper"])
TRUTH = {"root": True, "simulated": False, "ram_mb > 4000": True, "ram_mb > 9000": False}
TRUTH |= {"tag == paper": True}
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["and", "or"]), inner, inner),
    ),
    max_leaves=6,
)


def render(tree: Any) -> str:
    """Write an expression tree as a selector."""
    if isinstance(tree, str):
        return tree
    if tree[0] == "not":
        return f"not ({render(tree[1])})"
    return f"({render(tree[1])}) {tree[0]} ({render(tree[2])})"


def evaluate(tree: Any) -> bool:
    """Compute the truth of an expression tree."""
    if isinstance(tree, str):
        return TRUTH[tree]
    if tree[0] == "not":
        return not evaluate(tree[1])
    left, right = evaluate(tree[1]), evaluate(tree[2])
    return (left and right) if tree[0] == "and" else (left or right)


@settings(deadline=None, max_examples=60)
@given(tree=trees)
def test_the_canonical_text_has_the_same_meaning(tree: Any) -> None:
    selector = parse_selector(render(tree))
    reparsed = parse_selector(str(selector))
    facts = phone("a")
    assert (
        evaluate(tree) == selector.matches(facts, {"paper"}) == reparsed.matches(facts, {"paper"})
    )


@settings(deadline=None, max_examples=60)
@given(text=st.text("rot and(or)ram_mb><=!'\"*?,in ", max_size=40))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with suppress(BadSelector):
        parse_selector(text).matches(phone("a"))
