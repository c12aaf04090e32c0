"""The analysis of the arm64 binary: which loops are taken, what limits them, by which model."""

from pathlib import Path

import pytest

from benchmarks.arm64 import (
    CORES,
    Analysis,
    HotLoop,
    Llvm,
    by_published_rules,
    choose_loop,
    innermost_loops,
    main,
    model_name,
    parse_disassembly,
    peak,
)

FUNCTION = """
runner:	file format elf64-littleaarch64

0000000000001000 <.text>:
    1000:      	ldr	x8, [x0, #0x30]
    1004:      	ldrsw	x14, [x13, #0x4]
    1008:      	fmla	v31.4s, v12.4s, v8.s[0]
    100c:      	b.ne	0x1004 <.text+0x4>
    1010:      	fmla	v31.4s, v12.4s, v8.s[0]
    1014:      	fmla	v30.4s, v12.4s, v8.s[1]
    1018:      	subs	x9, x9, #0x1
    101c:      	b.ne	0x1010 <.text+0x10>
    1020:      	cbnz	x10, 0x1000 <.text>
    1024:      	b	0x1030 <.text+0x30>
    1028:      	ret
"""


def test_only_innermost_loops_are_taken() -> None:
    code = parse_disassembly(FUNCTION)
    loops = innermost_loops(code)
    assert [(loop[0].address, loop[-1].address) for loop in loops] == [
        (0x1004, 0x100C),
        (0x1010, 0x101C),
    ]
    assert [line.text for line in loops[0]][-1] == "b.ne\t0x1004"


def test_a_loop_is_chosen_by_its_instructions() -> None:
    code = parse_disassembly(FUNCTION)
    assert choose_loop(HotLoop("a", "f"), code)[0].address == 0x1010
    assert choose_loop(HotLoop("a", "f", contains="ldrsw"), code)[0].address == 0x1004
    with pytest.raises(SystemExit, match="no loop with multiply-adds"):
        choose_loop(HotLoop("a", "f", contains="fdiv"), code)


@pytest.mark.parametrize(
    ("cycles", "issue", "units", "limit"),
    [
        (16.0, 15.0, {"FPMAC": 12.0, "Ld": 6.0}, "issue width"),
        (12.1, 6.0, {"V0": 12.0, "L": 4.0}, "multiply-add units"),
        (31.0, 17.0, {"FPMAC": 12.0, "Ld": 14.0}, "latency"),
    ],
)
def test_the_limit_is_what_the_cycles_are_spent_on(
    cycles: float, issue: float, units: dict[str, float], limit: str
) -> None:
    assert Analysis(cycles, issue, units, products=24).limit == limit


def test_a_model_is_known_by_its_resources() -> None:
    assert model_name(["CortexA55UnitALU", "CortexA55UnitB"]) == "CortexA55"
    assert {core.model for core in CORES} == {"CortexA55", "N1", "V1"}


def test_published_rules_charge_128_bit_loads() -> None:
    product, load = "fmla v0.4s, v1.4s, v2.s[0]", "ldr q3, [x0]"
    assert by_published_rules([product] * 4) == 4.0
    assert by_published_rules([product] * 4 + ["add x0, x0, #16"]) == 4.0
    assert by_published_rules([product] * 4 + [load] * 2) == 2.0


@pytest.mark.slow
def test_the_product_loops_of_the_binary_reach_their_goals(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("ziglang", reason="the compiler is not installed (farmhand[build])")
    assert main(["--install"]) == 0
    table = capsys.readouterr().out
    for core in CORES:
        assert f"| {core.model} |" in table


OLD_LLVM = Path("/usr/lib/llvm-14/bin")


@pytest.mark.skipif(not (OLD_LLVM / "llvm-mca").exists(), reason="LLVM 14 is not installed")
@pytest.mark.slow
def test_the_model_of_another_core_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"no own model for neoverse-n1.*uses that of A57"):
        peak(Llvm(OLD_LLVM), CORES[1])
