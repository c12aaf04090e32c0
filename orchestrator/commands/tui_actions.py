"""What the keys of the screen do: the same decisions as on the command line, in the same words."""

from typing import TYPE_CHECKING

from orchestrator.commands.common import somebody
from orchestrator.plan.policy import PRIORITY_MAX

if TYPE_CHECKING:
    from orchestrator.dispatch.broker import Broker
    from orchestrator.store.control import Change
    from orchestrator.store.database import Database
    from orchestrator.tui.state import Ask

PRIORITY_STEP = 10


class Hands:
    """Carries out what the reader of a screen has confirmed."""

    def __init__(self, db: "Database", broker: "Broker") -> None:
        self._db = db
        self._broker = broker

    def do(self, ask: "Ask") -> str:
        """Do it, and say what was changed and how to undo it."""
        change = self._change(ask)
        if change.changed:
            self._broker.tell(change.event)
        return "  ".join(change.lines)

    def _change(self, ask: "Ask") -> "Change":
        from orchestrator.store import control, queries

        db, by = self._db, control.By(somebody())
        if ask.verb in ("raise", "lower"):
            (now,) = queries.sweep_summaries(db, ask.target)
            step = PRIORITY_STEP if ask.verb == "raise" else -PRIORITY_STEP
            wanted = min(PRIORITY_MAX, max(0, now.priority + step))
            return control.set_priority(db, ask.target, wanted, by)
        if ask.verb == "quarantine":
            return control.quarantine(db, ask.target, by, f"by {by.who}, from the screen")
        deeds = {
            "pause": control.pause,
            "resume": control.resume,
            "cancel": control.cancel,
            "retry": control.retry,
            "release": control.release,
        }
        return deeds[ask.verb](db, ask.target, by)
