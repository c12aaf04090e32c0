"""Marks sweeps without queued and running runs as finished, so that ticks do not read them again.

Whatever queues runs of a finished sweep makes it active before it does so, in the same transaction.
"""

from collections.abc import Sequence

from sqlalchemy import Connection, exists, func, select, update

from orchestrator.planning.states import RunState, SweepState
from orchestrator.store.database import Database
from orchestrator.store.notices import add_event
from orchestrator.store.tables import run, sweep
from workloads.lab.service_settings import NoticeKind

_LEFT = exists().where(
    run.c.sweep == sweep.c.id, run.c.state.in_((RunState.QUEUED, RunState.LEASED))
)
_ENDED = select(sweep.c.id).where(sweep.c.state == SweepState.ACTIVE, ~_LEFT)


def mark_finished(db: Database) -> list[str]:
    """Mark the active sweeps that have no run left; return them."""
    ended = db.values(_ENDED)
    if not ended:
        return []
    with db.write() as connection:
        same = select(sweep.c.id).where(sweep.c.id.in_(ended)).order_by(sweep.c.id)
        connection.execute(same.with_for_update())
        # Read again after the rows are locked: runs may have been added since.
        still = list(connection.execute(_ENDED.where(sweep.c.id.in_(ended))).scalars())
        finished = update(sweep).where(sweep.c.id.in_(still))
        connection.execute(finished.values(state=SweepState.FINISHED))
        _note_ends(connection, still)
    return still


def _note_ends(connection: Connection, ended: Sequence[str]) -> None:
    """Store a notice of each sweep that has ended, with the outcomes of its runs."""
    names = select(sweep.c.id, sweep.c.name).where(sweep.c.id.in_(ended))
    counts = (
        select(run.c.sweep, run.c.state, func.count())
        .where(run.c.sweep.in_(ended))
        .group_by(run.c.sweep, run.c.state)
        .order_by(run.c.state)
    )
    parts: dict[str, list[str]] = {}
    for sweep_id, state, count in connection.execute(counts).all():
        parts.setdefault(sweep_id, []).append(f"{count} {state}")
    for sweep_id, name in connection.execute(names).all():
        runs = ", ".join(parts.get(sweep_id, ["no runs"]))
        text = f"sweep {name} ({sweep_id}) has ended: {runs}"
        add_event(connection, NoticeKind.SWEEP_ENDED, sweep_id, text)


def reopen(connection: Connection, sweep_id: str) -> None:
    """Make a finished sweep active, and lock its row; runs of it may be queued after this."""
    same = (sweep.c.id == sweep_id, sweep.c.state == SweepState.FINISHED)
    connection.execute(update(sweep).where(*same).values(state=SweepState.ACTIVE))
