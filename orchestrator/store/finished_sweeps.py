"""Marks sweeps without queued and running runs as finished, so that ticks do not read them again.

Whatever queues runs of a finished sweep makes it active before it does so, in the same transaction.
"""

from sqlalchemy import Connection, exists, select, update

from orchestrator.decisions.states import RunState, SweepState
from orchestrator.store.database import Database
from orchestrator.store.tables import run, sweep

_LEFT = exists().where(
    run.c.sweep == sweep.c.id, run.c.state.in_((RunState.QUEUED, RunState.LEASED))
)
_ENDED = select(sweep.c.id).where(sweep.c.state == SweepState.ACTIVE, ~_LEFT)


def mark_finished(db: Database) -> list[str]:
    """Mark the active sweeps that have no run left; return them."""
    with db.read() as connection:
        ended = list(connection.execute(_ENDED).scalars())
    if not ended:
        return []
    with db.write() as connection:
        same = select(sweep.c.id).where(sweep.c.id.in_(ended)).order_by(sweep.c.id)
        connection.execute(same.with_for_update())
        # Read again after the rows are locked: runs may have been added since.
        still = list(connection.execute(_ENDED.where(sweep.c.id.in_(ended))).scalars())
        finished = update(sweep).where(sweep.c.id.in_(still))
        connection.execute(finished.values(state=SweepState.FINISHED))
    return still


def reopen(connection: Connection, sweep_id: str) -> None:
    """Make a finished sweep active, and lock its row; runs of it may be queued after this."""
    same = (sweep.c.id == sweep_id, sweep.c.state == SweepState.FINISHED)
    connection.execute(update(sweep).where(*same).values(state=SweepState.ACTIVE))
