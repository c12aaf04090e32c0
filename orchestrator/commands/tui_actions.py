"""What the keys of the screen do: the same decisions as on the command line, in the same words."""

from typing import TYPE_CHECKING

from orchestrator.commands.common import current_user
from orchestrator.sweepfile.policy import PRIORITY_MAX

if TYPE_CHECKING:
    from orchestrator.dispatch.central_broker import CentralBroker
    from orchestrator.store.database import Database
    from orchestrator.store.operator_change import OperatorChange
    from orchestrator.tui.ui_state import PendingAction

PRIORITY_STEP = 10


class ActionHandler:
    """Carries out what the reader of a screen has confirmed."""

    def __init__(self, db: "Database", broker: "CentralBroker") -> None:
        self._db = db
        self._broker = broker

    def do(self, ask: "PendingAction") -> str:
        """Do it, and say what was changed and how to undo it."""
        change = self._change(ask)
        if change.changed:
            self._broker.publish_event(change.event)
        return "  ".join(change.lines)

    def _change(self, ask: "PendingAction") -> "OperatorChange":
        from orchestrator.store import operator_change, phone_actions, sweep_actions, sweep_queries

        db, by = self._db, operator_change.Actor(current_user())
        if ask.verb in ("raise", "lower"):
            (now,) = sweep_queries.sweep_summaries(db, ask.target)
            step = PRIORITY_STEP if ask.verb == "raise" else -PRIORITY_STEP
            wanted = min(PRIORITY_MAX, max(0, now.priority + step))
            return sweep_actions.set_priority(db, ask.target, wanted, by)
        if ask.verb == "quarantine":
            return phone_actions.quarantine(db, ask.target, by, f"by {by.name}, from the screen")
        deeds = {
            "pause": sweep_actions.pause,
            "resume": sweep_actions.resume,
            "cancel": sweep_actions.cancel,
            "retry": sweep_actions.retry,
            "release": phone_actions.release,
        }
        return deeds[ask.verb](db, ask.target, by)
