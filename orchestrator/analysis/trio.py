"""Which three phones to take for a federated round.

A synchronous round ends when its slowest phone does, so the sustained time of the slowest is what
is made small. Phones within two percent are equally quick; among those the frugal ones are taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.analysis.pace import Pace

SIZE = 3
EQUAL_WITHIN = 0.02


@dataclass(frozen=True)
class Trio:
    """Three phones, the quickest first, with what else could have been taken."""

    chosen: tuple[Pace, ...]
    next: Pace | None
    spared: Pace | None


def choose_trio(sustained: Sequence[Pace], energy: Sequence[Pace]) -> Trio | None:
    """Choose from paces that are sorted best first; None when there are fewer than three."""
    if len(sustained) < SIZE:
        return None
    limit = sustained[SIZE - 1].value * (1 + EQUAL_WITHIN)
    as_quick = [pace for pace in sustained if pace.value <= limit]
    chosen = as_quick[:SIZE]
    spared = None
    needs = {pace.phone: pace for pace in energy}
    if len(as_quick) > SIZE and all(_same_making(pace, needs) for pace in as_quick):
        frugal = sorted(as_quick, key=lambda pace: (needs[pace.phone].value, pace.value))
        chosen = sorted(frugal[:SIZE], key=lambda pace: pace.value)
        spared = frugal[SIZE]
    others = [pace for pace in sustained if pace not in chosen]
    return Trio(tuple(chosen), others[0] if others else None, spared)


def _same_making(pace: Pace, needs: dict[str, Pace]) -> bool:
    """Whether the phone's energy is known, and made the way its time was."""
    need = needs.get(pace.phone)
    return need is not None and need.provenance.source is pace.provenance.source
