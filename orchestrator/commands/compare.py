"""`farm compare`: one side against another, with intervals and a verdict."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.commands.common import (
    json_option,
    lab_option,
    open_store,
    print_json,
    print_table,
    read_lab,
)
from orchestrator.commands.completion import complete_sweep
from orchestrator.commands.exit_codes import THRESHOLD_EXCEEDED
from workloads.protocol.faults import InvalidRequest

if TYPE_CHECKING:
    from orchestrator.analysis.ab_comparison import Comparison, ComparisonTable
    from orchestrator.analysis.measurements import TrialSeries
    from orchestrator.analysis.trial_pairs import PairedTrials
    from orchestrator.store.database import Database

WORDS = ("faster", "slower", "same", "unclear")
Trip = Callable[["Comparison"], bool]


@dataclass(frozen=True)
class CompareOptions:
    """How the sides are to be compared."""

    metric: str
    by: str
    margin: str
    itself: bool
    mix: bool
    fail_on: str


@click.command()
@click.argument("sides", metavar="A [B]", nargs=-1, required=True, shell_complete=complete_sweep)
@lab_option
@click.option("--metric", default="", help="A figure of 'farm metrics'; else what each run is for.")
@click.option(
    "--by",
    type=click.Choice(["cell", "phone", "trial"]),
    default="cell",
    show_default=True,
    help="What a row stands for.",
)
@click.option("--margin", default="2%", show_default=True, help="Differences that do not matter.")
@click.option("--self", "itself", is_flag=True, help="Every phone of sweep A against itself.")
@click.option("--mix", is_flag=True, help="Compare also what was made in unlike ways.")
@click.option(
    "--fail-on",
    default="",
    metavar="WORDS",
    help="Leave with code 9 on these verdicts: slower, unclear, or slower:5% for five and more.",
)
@json_option
def compare(sides: tuple[str, ...], lab_folder: Path, as_json: bool, **asked: Any) -> int:
    """Compare side B with side A: sweeps, phones or conditions.

    A side is SWEEP, SWEEP:KEY=VALUE,... or KEY=VALUE,... of the sweep that the other side names.
    Keys are phone, workload, cores, freq, protocol, batch_size and so on. The ratio is B over A.
    """
    from orchestrator.analysis.measurements import NothingToCompare

    wish = CompareOptions(**asked)
    trip = _read_fail_on(wish.fail_on)
    if len(sides) != (1 if wish.itself else 2):
        raise InvalidRequest("compare takes two sides, A and B, or one sweep with --self")
    found = _contest(open_store(read_lab(lab_folder)), sides, wish)
    if not found.rows:
        why = _left_out(found) or "there are no runs"
        raise NothingToCompare(f"nothing can be compared: {why}")
    if as_json:
        print_json(_document(sides, found))
    else:
        _print(sides, found, wish.itself)
    return THRESHOLD_EXCEEDED if any(trip(row) for row in found.rows) else 0


def _contest(db: "Database", sides: tuple[str, ...], wish: CompareOptions) -> "ComparisonTable":
    from orchestrator.analysis.ab_comparison import GroupBy, compare_sides
    from orchestrator.analysis.split_half import split_half_check

    if wish.itself:
        return split_half_check(_figures(db, sides[0], wish.metric), _share(wish.margin))
    paired = _paired(db, sides[0], sides[1], wish)
    return compare_sides(paired, GroupBy(wish.by), _share(wish.margin))


def _paired(db: "Database", base: str, candidate: str, wish: CompareOptions) -> "PairedTrials":
    """Read both sides; a side without a sweep is of the other's."""
    from orchestrator.analysis.side_filter import parse_side
    from orchestrator.analysis.trial_pairs import pair_trials

    sides = parse_side(base), parse_side(candidate)
    named = [side.sweep for side in sides if side.sweep]
    if not named:
        raise InvalidRequest("neither side names a sweep; write SWEEP:KEY=VALUE on one of them")
    if sides[0].sweep == sides[1].sweep and sides[0].patterns == sides[1].patterns:
        raise InvalidRequest(
            "both sides are the same; 'farm compare SWEEP --self' is meant for that"
        )
    trials = {name: _figures(db, name, wish.metric) for name in dict.fromkeys(named)}
    mine, theirs = (trials[side.sweep or named[0]] for side in sides)
    return pair_trials(mine, theirs, sides, wish.mix)


def _figures(db: "Database", sweep: str, metric: str) -> "list[TrialSeries]":
    from orchestrator.analysis.trial_series import group_by_trial
    from orchestrator.store.metric_rows import metric_values
    from orchestrator.store.sweep_queries import find_sweep

    return group_by_trial(metric_values(db, metric, find_sweep(db, sweep).id))


def _share(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise InvalidRequest(f"'{text}' is no share; write it like 2%")
    return share


def _read_fail_on(text: str) -> Trip:
    """Read which verdicts make the command fail."""
    wanted: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        word, _, least = part.partition(":")
        if word not in WORDS:
            raise InvalidRequest(f"--fail-on knows no '{word}'; it knows {', '.join(WORDS)}")
        wanted[word] = _share(least) if least else 0.0
    return lambda row: row.verdict in wanted and abs(row.ratio - 1) >= wanted[row.verdict]


def _print(sides: tuple[str, ...], found: "ComparisonTable", itself: bool) -> None:
    """Rows, the whole, and what was left out."""
    headings = ("WHAT", "A", "B", "UNIT", "B/A", "95% INTERVAL", "P (HOLM)", "RUNS", "VERDICT")
    print_table(headings, [_cells(row) for row in (*found.rows, *found.overall)])
    reasons = Counter(row.reason for row in found.rows if row.reason is not None)
    said = [
        f"unclear in {count} of {len(found.rows)}: {reason.text}"
        for reason, count in reasons.items()
    ]
    for row in found.overall:
        name, ratio = row.worst
        said.append(f"{row.label}: geometric mean {row.ratio:.3f}, worst {ratio:.3f} ({name})")
    sources = ", ".join(sorted({str(row.provenance) for row in found.rows}))
    halves = "odd against even blocks of each trial" if itself else f"A is {sides[0]}"
    what = halves if itself else f"{halves}, B is {sides[1]}"
    margin = f"differences within ±{found.margin:.1%} do not matter"
    for line in (*said, f"{what}; {margin}; source: {sources}."):
        click.echo(line, err=True)
    if found.left_out:
        click.echo(f"left out: {_left_out(found)}", err=True)


def _left_out(found: "ComparisonTable") -> str:
    return ", ".join(f"{count} {reason.text}" for reason, count in found.left_out)


def _cells(row: "Comparison") -> list[str]:
    from workloads.protocol.metrics import METRICS
    from workloads.units import format_ms

    known = row.low is not None and row.high is not None
    return [
        row.label,
        *(format_ms(value) for value in row.medians),
        METRICS[row.metric.partition(".")[0]].unit,
        f"{row.ratio:.3f}",
        f"{row.low:.3f} .. {row.high:.3f}" if known else "-",
        "-" if row.p_holm is None else f"{row.p_holm:.3f}" if row.p_holm >= 0.001 else "<0.001",
        f"{row.runs[0]}+{row.runs[1]}",
        str(row.verdict),
    ]


def _document(sides: tuple[str, ...], found: "ComparisonTable") -> dict[str, object]:
    from dataclasses import asdict

    def row(each: "Comparison") -> dict[str, object]:
        return {**asdict(each), "provenance": each.provenance.model_dump(mode="json")}

    return {
        "sides": list(sides),
        "margin": found.margin,
        "rows": [row(each) for each in found.rows],
        "overall": [row(each) for each in found.overall],
        "left_out": dict(found.left_out),
    }
