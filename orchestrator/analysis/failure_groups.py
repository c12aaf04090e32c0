"""Groups failed runs by the kind of their fault: how many, on which phones, and why."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.analysis.measurements import RunOutcome
from orchestrator.planning.states import RunState
from workloads.protocol.faults import FaultKind
from workloads.text import safe_text

FAILED_STATES = (RunState.FAILED, RunState.BLOCKED)


@dataclass(frozen=True)
class FailureGroup:
    """Runs that failed for one reason; the text is that of most of them."""

    kind: FaultKind | None  # None: no report has a reason
    runs: int
    phones: tuple[str, ...]
    text: str

    @property
    def name(self) -> str:
        """The reason in a word or two."""
        return self.kind.value.replace("_", " ") if self.kind else "not run"

    @property
    def title(self) -> str:
        """The reason, with the number of runs and phones."""
        phones = f"{len(self.phones)} phone{'s' * (len(self.phones) != 1)}"
        return f"{self.name} ×{self.runs} on {phones}"


def group_failures(outcomes: Iterable[RunOutcome]) -> tuple[FailureGroup, ...]:
    """Group the runs that failed, the most frequent reason first."""
    members: dict[FaultKind | None, list[RunOutcome]] = {}
    for outcome in outcomes:
        if outcome.state in FAILED_STATES:
            kind = outcome.fault.kind if outcome.fault else None
            members.setdefault(kind, []).append(outcome)
    groups = []
    for kind, failed in members.items():
        texts = Counter(safe_text(run.fault.text if run.fault else run.note, 400) for run in failed)
        phones = tuple(sorted({run.phone for run in failed}))
        groups.append(FailureGroup(kind, len(failed), phones, texts.most_common(1)[0][0]))
    return tuple(sorted(groups, key=lambda group: -group.runs))
