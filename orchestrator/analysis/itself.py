"""Every phone against itself: its even blocks against its odd ones, which nothing tells apart.

A phone that differs from itself was not held still, and no difference between phones of that size
means anything. This is the standing check of the whole way from the phone to the verdict.
"""

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.analysis.pairs import Paired, TrialPair
from orchestrator.analysis.provenance import weakest
from orchestrator.analysis.versus import MARGIN, By, Contest, contest
from orchestrator.nouns import TrialFigures
from workloads.measure import Provenance, Source
from workloads.text import natural, safe_text

MEASURED = Provenance(source=Source.PHONE)


def against_itself(trials: Sequence[TrialFigures], margin: float = MARGIN) -> Contest:
    """Compare the two halves of every trial, phone by phone, over all its protocols.

    What a model is off by, both halves share: a simulated phone is judged as any other, and is
    called simulated all the same.
    """
    pairs, single = [], 0
    made: dict[str, list[Provenance]] = {}
    for trial in trials:
        even, odd = (_half(trial, remainder) for remainder in (0, 1))
        if even.values and odd.values:
            phone = safe_text(f"{trial.model} ({trial.phone})", 80)
            pairs.append(TrialPair(even, odd, trial.case.label, trial.condition.label, phone))
            made.setdefault(phone, []).extend([trial.provenance] if trial.provenance else [])
        else:
            single += 1
    pairs.sort(key=lambda pair: (pair.phone, natural(pair.case), pair.condition))
    left_out = (("trials with fewer than two valid runs", single),) if single else ()
    found = contest(Paired(tuple(pairs), left_out), By.WHOLE_PHONE, margin)
    every = [each for own in made.values() for each in own]
    return replace(
        found,
        rows=tuple(replace(row, provenance=weakest(made[row.label])) for row in found.rows),
        overall=tuple(replace(row, provenance=weakest(every)) for row in found.overall),
    )


def _half(trial: TrialFigures, remainder: int) -> TrialFigures:
    runs = [
        (value, block)
        for at, (value, block) in enumerate(zip(trial.values, trial.blocks, strict=True))
        if at % 2 == remainder
    ]
    return replace(
        trial,
        provenance=MEASURED,
        values=tuple(value for value, _ in runs),
        blocks=tuple(block for _, block in runs),
    )
