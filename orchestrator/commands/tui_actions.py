"""Carries out the actions that the user of `farm watch` has confirmed."""

from typing import TYPE_CHECKING

from orchestrator.tui.ui_state import ActionKind

if TYPE_CHECKING:
    from orchestrator.app.control_sweeps import OperatorChange
    from orchestrator.app.lab_connection import LabConnection
    from orchestrator.tui.ui_state import PendingAction

PRIORITY_STEP = 10


class ActionHandler:
    """Makes the same changes as the commands, through the same operations."""

    def __init__(self, lab: "LabConnection") -> None:
        self._lab = lab

    def execute(self, action: "PendingAction") -> str:
        """Execute an action; return what was changed and how to undo it."""
        return "  ".join(self._change(action).lines)

    def _change(self, action: "PendingAction") -> "OperatorChange":
        from orchestrator.app import control_phones as phones
        from orchestrator.app import control_sweeps as sweeps

        lab, target = self._lab, action.target
        match action.kind:
            case ActionKind.PAUSE:
                return sweeps.pause_sweep(lab, target)
            case ActionKind.RESUME:
                return sweeps.resume_sweep(lab, target)
            case ActionKind.CANCEL:
                return sweeps.cancel_sweep(lab, target)
            case ActionKind.RETRY:
                return sweeps.retry_sweep(lab, target)
            case ActionKind.RAISE | ActionKind.LOWER:
                step = PRIORITY_STEP if action.kind is ActionKind.RAISE else -PRIORITY_STEP
                priority = sweeps.find_sweep(lab, target).priority + step
                return sweeps.set_sweep_priority(
                    lab, target, min(sweeps.PRIORITY_MAX, max(0, priority))
                )
            case ActionKind.QUARANTINE:
                reason = f"by {lab.user}, from farm watch"
                return phones.quarantine_phone(lab, target, reason)
            case ActionKind.RELEASE:
                return phones.release_phone(lab, target)
