"""Split-half check: compares the even blocks of every phone with its odd blocks.

The two halves should differ by chance only. If they differ by more, the phone's conditions were not
stable, and a difference of that size between phones is not conclusive. The check covers the whole
chain from the phone to the verdict.
"""

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.analysis.ab_comparison import MARGIN, ComparisonTable, GroupBy, compare_sides
from orchestrator.analysis.measurements import Exclusion, TrialSeries, weakest_provenance
from orchestrator.analysis.trial_pairs import PairedTrials, TrialPair
from workloads.protocol.metrics import Provenance, Source
from workloads.text import natural_sort_key, safe_text

MEASURED = Provenance(source=Source.PHONE)


def split_half_check(trials: Sequence[TrialSeries], margin: float = MARGIN) -> ComparisonTable:
    """Compare the two halves of every trial, phone by phone, over all its protocols.

    Both halves share the error of a model, so a simulated phone is judged like any other; the
    result is still labelled as simulated.
    """
    pairs, unpaired = [], 0
    provenances: dict[str, list[Provenance]] = {}
    for trial in trials:
        even, odd = (_half(trial, remainder) for remainder in (0, 1))
        if even.values and odd.values:
            phone = phone_label(trial.model, trial.phone)
            pairs.append(TrialPair(even, odd, trial.case.label, trial.condition.label, phone))
            provenances.setdefault(phone, []).extend([trial.provenance] if trial.provenance else [])
        else:
            unpaired += 1
    pairs.sort(key=lambda pair: (pair.phone, natural_sort_key(pair.case), pair.condition))
    left_out = ((Exclusion.TOO_FEW_RUNS, unpaired),) if unpaired else ()
    table = compare_sides(PairedTrials(tuple(pairs), left_out), GroupBy.WHOLE_PHONE, margin)
    all_provenances = [item for members in provenances.values() for item in members]
    return replace(
        table,
        rows=tuple(
            replace(row, provenance=weakest_provenance(provenances[row.label]))
            for row in table.rows
        ),
        overall=tuple(
            replace(row, provenance=weakest_provenance(all_provenances)) for row in table.overall
        ),
    )


def phone_label(model: str, phone: str) -> str:
    """Return the name of a phone in the rows of the check."""
    return safe_text(f"{model} ({phone})", 80)


def _half(trial: TrialSeries, remainder: int) -> TrialSeries:
    runs = [
        (value, block)
        for index, (value, block) in enumerate(zip(trial.values, trial.blocks, strict=True))
        if index % 2 == remainder
    ]
    return replace(
        trial,
        provenance=MEASURED,
        values=tuple(value for value, _ in runs),
        blocks=tuple(block for _, block in runs),
    )
