"""Queries on sweeps: their counts, their state, their source and their demands."""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import func, or_, select

from orchestrator.analysis.verdict_counts import LeftOutRuns
from orchestrator.planning.states import PausedBy, RunState, SweepState
from orchestrator.store.database import Database, as_utc
from orchestrator.store.tables import metric_origin, metric_value, run, sweep, trial
from workloads.protocol.faults import InvalidRequest
from workloads.protocol.metrics import Source
from workloads.text import safe_text


@dataclass(frozen=True)
class SweepSummary:
    """A sweep in one line."""

    id: str
    name: str
    created_at: datetime
    trials: int
    runs: dict[RunState, int] = field(default_factory=dict)
    state: SweepState = SweepState.ACTIVE
    state_reason: str = ""
    paused_by: PausedBy | None = None
    owner: str = ""
    priority: int = 50
    deadline: datetime | None = None
    started_at: datetime | None = None
    wall_s: float | None = None  # limits of its budget: this and the next two
    failures_max: int | None = None
    failures_share_max: float | None = None
    pinned: bool = False  # kept by 'farm store prune'
    left_out: LeftOutRuns = field(default_factory=LeftOutRuns)  # counted by verdict_totals

    @property
    def total(self) -> int:
        """All planned runs."""
        return sum(self.runs.values())

    @property
    def done(self) -> int:
        """Runs with an accepted report."""
        return self.runs.get(RunState.DONE, 0)

    @property
    def failed(self) -> int:
        """Runs that are not tried again."""
        return self.runs.get(RunState.FAILED, 0)

    @property
    def left(self) -> int:
        """Queued and running runs; blocked and cancelled ones need an operator."""
        return self.runs.get(RunState.QUEUED, 0) + self.runs.get(RunState.LEASED, 0)

    @property
    def ended(self) -> int:
        """Runs that are neither left nor cancelled."""
        return self.total - self.left - self.runs.get(RunState.CANCELLED, 0)

    @property
    def unended(self) -> int:
        """Runs that are left or cancelled."""
        return self.total - self.ended

    @property
    def missing(self) -> int:
        """Runs without a result that was wanted: failed, blocked, left or cancelled."""
        return self.total - self.done - self.runs.get(RunState.SKIPPED, 0)

    @property
    def finished(self) -> bool:
        """Whether no run is left."""
        return self.left == 0


_OPEN = (SweepState.ACTIVE, SweepState.PAUSED)
# Without the source: it is longer than all the rest.
_SHOWN = [column for column in sweep.c if column.name != "source"]


def sweep_summaries(
    db: Database, sweep_id: str | None = None, limit: int | None = None
) -> list[SweepSummary]:
    """Return sweeps with their counts, newest first; `limit` of them, and all that are open."""
    selected = select(*_SHOWN).order_by(sweep.c.created_at.desc())
    if limit is not None:
        newest = select(sweep.c.id).order_by(sweep.c.created_at.desc()).limit(limit)
        shown = (sweep.c.state.in_(_OPEN), sweep.c.id.in_(newest.scalar_subquery()))
        selected = selected.where(or_(*shown))
    if sweep_id is not None:
        selected = selected.where(sweep.c.id == sweep_id)
    with db.read() as connection:
        rows = connection.execute(selected).all()
        ids = [row.id for row in rows]
        counts = connection.execute(
            select(run.c.sweep, run.c.state, func.count())
            .where(run.c.sweep.in_(ids))
            .group_by(run.c.sweep, run.c.state)
        ).all()
        trials = connection.execute(
            select(trial.c.sweep, func.count().label("trials"))
            .where(trial.c.sweep.in_(ids))
            .group_by(trial.c.sweep)
        ).all()
    trials_of: dict[str, int] = {row.sweep: row.trials for row in trials}
    runs_of: dict[str, dict[RunState, int]] = {}
    for name, state, count in counts:
        runs_of.setdefault(name, {})[RunState(state)] = count
    return [_summary(row, trials_of.get(row.id, 0), runs_of.get(row.id, {})) for row in rows]


def _summary(row: Any, trials: int, runs: dict[RunState, int]) -> SweepSummary:
    policy = row.policy if isinstance(row.policy, dict) else {}  # a damaged one can be removed
    stated = policy.get("budget")
    budget = stated if isinstance(stated, dict) else {}
    state = SweepState(row.state)
    is_left = any(runs.get(each) for each in (RunState.QUEUED, RunState.LEASED))
    if runs and not is_left and state is not SweepState.CANCELLED:
        state = SweepState.FINISHED  # which the scheduler notes within a second, if it runs
    return SweepSummary(
        id=row.id,
        name=row.name,
        created_at=as_utc(row.created_at),
        trials=trials,
        runs=runs,
        state=state,
        state_reason=row.state_reason,
        paused_by=PausedBy(row.paused_by) if row.paused_by else None,
        owner=row.owner,
        priority=row.priority,
        deadline=_moment(row.deadline),
        started_at=_moment(row.started_at_s),
        wall_s=budget.get("wall_s"),
        failures_max=budget.get("failures"),
        failures_share_max=budget.get("failures_share"),
        pinned=row.pinned,
    )


def count_runs_left(db: Database) -> int:
    """Count the queued and running runs of all open sweeps."""
    open_sweeps = select(sweep.c.id).where(sweep.c.state.in_(_OPEN))
    left = (run.c.sweep.in_(open_sweeps), run.c.state.in_((RunState.QUEUED, RunState.LEASED)))
    return int(db.value(select(func.count()).select_from(run).where(*left)))


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def find_sweep(db: Database, name: str) -> SweepSummary:
    """Find a sweep by id, by a unique prefix of its id, or by name (the newest of that name)."""
    sweeps = db.rows(select(sweep.c.id, sweep.c.name).order_by(sweep.c.created_at.desc()))
    exact = [item.id for item in sweeps if name in item]
    found = exact[:1] or [item.id for item in sweeps if item.id.startswith(name)]
    if len(found) == 1:
        return sweep_summaries(db, found[0])[0]
    if found:
        raise InvalidRequest(f"'{safe_text(name)}' is ambiguous ({len(found)} sweeps match)")
    raise InvalidRequest(f"there is no sweep '{safe_text(name)}'; 'farm sweep list' shows all")


def sweeps_of_name(db: Database, name: str) -> list[str]:
    """Return the ids of the sweeps with a name, newest first."""
    same = select(sweep.c.id).where(sweep.c.name == name).order_by(sweep.c.created_at.desc())
    return db.values(same)


def sweep_exists(db: Database, sweep_id: str) -> bool:
    """Return whether the store has a sweep."""
    return db.value(select(sweep.c.id).where(sweep.c.id == sweep_id)) is not None


def sweep_source(db: Database, sweep_id: str) -> str:
    """Return the sweep file as it was submitted."""
    return str(db.value(select(sweep.c.source).where(sweep.c.id == sweep_id)))


def stop_rule_limits(db: Database, sweep_id: str) -> tuple[int, int] | None:
    """Return the fewest and the most runs per trial of a sweep; None without a stop rule."""
    policy = db.value(select(sweep.c.policy).where(sweep.c.id == sweep_id))
    rule = policy.get("stop") if isinstance(policy, dict) else None
    return (rule["n_min"], rule["n_max"]) if rule else None


def sweep_seed(db: Database, sweep_id: str) -> int:
    """Return the seed of the random order of a sweep's runs."""
    return int(db.value(select(sweep.c.seed).where(sweep.c.id == sweep_id)))


def has_simulated_metrics(db: Database, sweep_id: str) -> bool:
    """Return whether any metric of a sweep is simulated."""
    simulated = (
        select(metric_value.c.name)
        .join(run, run.c.id == metric_value.c.run)
        .join(metric_origin, metric_origin.c.id == metric_value.c.origin)
        .where(run.c.sweep == sweep_id, metric_origin.c.source == Source.SIMULATED)
        .limit(1)
    )
    return db.value(simulated) is not None


class RunNote(NamedTuple):
    """A run, its phone, and why it is in its state."""

    trial: str
    repeat: int
    phone: str
    reason: str


def runs_in_state(db: Database, sweep_id: str, state: RunState) -> list[RunNote]:
    """Return the runs of a sweep that are in a state, with the reason."""
    rows = db.rows(
        select(run.c.trial, run.c.repeat, run.c.phone, run.c.note)
        .where(run.c.sweep == sweep_id, run.c.state == state)
        .order_by(run.c.id)
    )
    return [RunNote(*row) for row in rows]


def phones_of_sweep(db: Database, sweep_id: str) -> frozenset[str]:
    """Return the phones that have trials of a sweep."""
    phones = select(trial.c.phone).where(trial.c.sweep == sweep_id).distinct()
    return frozenset(db.values(phones))


@dataclass(frozen=True)
class SweepDemand:
    """What the scheduler needs to know about a sweep to share the lab fairly."""

    id: str
    owner: str
    priority: int
    deadline: float | None
    created_at_s: float
    left: int  # queued runs of its busiest phone; counted only for sweeps with a deadline


def sweep_demands(db: Database, sweeps: Collection[str]) -> list[SweepDemand]:
    """Return owner, priority, deadline and remaining work of sweeps."""
    with db.read() as connection:
        rows = connection.execute(select(sweep).where(sweep.c.id.in_(sweeps))).all()
        with_deadline = [row.id for row in rows if row.deadline is not None]
        per_phone = (
            select(run.c.sweep, func.count().label("left"))
            .where(run.c.sweep.in_(with_deadline), run.c.state == RunState.QUEUED)
            .group_by(run.c.sweep, run.c.phone)
            .subquery()
        )
        most = select(per_phone.c.sweep, func.max(per_phone.c.left)).group_by(per_phone.c.sweep)
        left: dict[str, int] = dict(connection.execute(most).all()) if with_deadline else {}
    return [
        SweepDemand(
            *(row.id, row.owner, row.priority, row.deadline, as_utc(row.created_at).timestamp()),
            left=left.get(row.id, 0),
        )
        for row in rows
    ]
