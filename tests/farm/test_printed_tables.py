"""Tables and paragraphs of commands on terminals of several widths."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.commands.common import column_widths
from tests.analysis.builders import a_trial_of, phone
from tests.farm.farm_command import run_in_process
from tests.farm.quiet_lab import QuietLab, quiet_lab
from tests.stored_runs import store_runs
from workloads.protocol.messages import PhoneStatus

MODELS = {"192.168.100.200:5555": "Xiaomi Redmi Note 9 Pro", "VS8P0001": "samsung Galaxy S8+"}
PLANNED = (
    "farm: 1\nname: planned\nworkload: mlp-4\nphones: all\nmatrix: {freq: [high, low]}\nrepeat: 4\n"
)
TABLES = (
    *("sweep list", "sweep show before", "sweep plan FILE", "trial list before", "phone list"),
    *("host list", "lab token list", "lab notices", "lab audit"),
    *("compare before after", "compare before after --by phone", "compare --over-time"),
    "study show emdl-latency",
)
DETAILS = (
    *("trial show TRIAL", "phone show VS8P0001", "status", "doctor", "workload show mlp-4"),
    *("lab config --origin", "study list", "workload list", "workload list --engines"),
)
HIDDEN = re.compile(
    r"(hidden|not listed|the same in all rows):.*-w\s+(for\s+all|lists\s+them)", re.DOTALL
)
CHANGING = re.compile(r"[-+][\d.]+ s\b|[\d.]+ GB free")  # of the test's hosts


@pytest.fixture(scope="module")
def quiet() -> Iterator[QuietLab]:
    """A lab with two sweeps on two phones with long names, tokens and changes."""
    with tempfile.TemporaryDirectory() as folder, quiet_lab(Path(folder)) as lab:
        for name, slow in (("before", 1.0), ("after", 1.3)):
            runs = [
                run
                for number, (serial, model) in enumerate(MODELS.items())
                for size in (32, 256)
                for run in a_trial_of(
                    slow * size / (number + 1),
                    *(4,),
                    serial=serial,
                    facts=phone(serial, model=model),
                    parameters={"batch_size": size},
                )
            ]
            store_runs(lab.store, runs, name)
        (lab.lab.root / "FILE").write_text(PLANNED)
        lab.command("lab", "token", "add", "student", "--role", "viewer")
        lab.command("phone", "quarantine", "VS8P0001", "--why", "its battery is swollen")
        yield lab


def shown(lab: QuietLab, line: str, columns: int) -> str:
    """Run a command at a terminal; return what it printed, without colours."""
    words = line.split()
    lab.send(*(PhoneStatus(serial=serial, state="idle") for serial in MODELS), host="bench-1")
    if "TRIAL" in words:
        _, trials, _ = lab.command("trial", "list", "before")
        words[words.index("TRIAL")] = trials.splitlines()[1].split("\t")[0]
    words = [str(lab.lab.root / word) if word == "FILE" else word for word in words]
    if words[0] in ("study", "workload"):  # they need no lab
        _, out, err = run_in_process(*words, columns=columns)
    else:
        _, out, err = lab.command(*words, columns=columns)
    return CHANGING.sub("0", re.sub("\x1b\\[[0-9;]*m", "", out + err))


@pytest.mark.parametrize("line", [*TABLES, *DETAILS])
def test_no_terminal_breaks_a_line_or_a_word(quiet: QuietLab, line: str) -> None:
    wide = set(shown(quiet, line if line not in TABLES else f"{line} -w", 1000).split())
    assert len(wide) > 2
    for columns in (80, 100, 120, 200):
        narrow = shown(quiet, line, columns)
        too_long = [each for each in narrow.splitlines() if len(each.rstrip()) > columns]
        # A path of this checkout may be longer than a terminal is wide: it is not cut.
        assert [each for each in too_long if len(each.split()) > 1] == []
        hidden = HIDDEN.search(narrow)
        added = set(hidden[0].split()) if hidden else set()
        assert set(narrow.split()) <= wide | added, f"a cut word at {columns} columns"
        names = re.search(r"hidden: ([^;]*); -w for all", " ".join(narrow.split()))
        assert not names or {word for name in names[1].split(", ") for word in name.split()} <= wide


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (60, [23, 18, 19]),  # everything fits
        (50, [23, 14, 13]),  # headings are broken before the cells below them
        (40, [23, 8, 9]),
        (34, [17, 8, 9]),  # the widest cells are broken first
        (20, [6, 8, 9]),  # never within a word
    ],
)
def test_space_is_for_words_then_cells_then_headings(space: int, expected: list[int]) -> None:
    words, bodies, headings = [6, 8, 9], [23, 6, 6], [5, 18, 19]
    assert column_widths(words, bodies, headings, space) == expected
