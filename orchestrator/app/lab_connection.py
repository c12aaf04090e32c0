"""A user's connection to a lab: store, broker and job queue, each opened on first use.

A connection with a `remote` has none of them: its operations are calls of the lab's API.
"""

from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Self

from orchestrator.app.app_errors import InvalidState
from workloads.lab.settings import Lab
from workloads.protocol.faults import BrokerDown, StoreDown

if TYPE_CHECKING:
    from orchestrator.app.lab_changes import LabChangeLog
    from orchestrator.app.remote.api_client import RemoteLab
    from orchestrator.dispatch.central_broker import CentralBroker
    from orchestrator.dispatch.job_queue import JobQueue
    from orchestrator.store.database import Database
    from orchestrator.store.operator_change import Actor


class LabConnection(AbstractContextManager["LabConnection"]):
    """A lab, and the user on whose behalf its operations run."""

    def __init__(self, lab: Lab, user: str = "", remote: "RemoteLab | None" = None) -> None:
        self.lab = lab
        self.user = user
        self.remote = remote
        self._owner: LabConnection | None = None  # whose store, broker and queue this one uses

    def for_user(self, user: str) -> "LabConnection":
        """Return a connection of another user that uses what this one opens."""
        other = LabConnection(self.lab, user)
        other._owner = self
        return other

    def check(self) -> None:
        """Raise BrokerDown unless the lab is up; a remote lab raises it at the first call."""
        if self.remote is None:
            self.broker.check()

    @property
    def place(self) -> str:
        """Where the lab is: its folder, or the URL of its API."""
        return str(self.lab.root) if self.remote is None else self.remote.url

    def _refuse_remote(self) -> None:
        if self.remote is not None:
            raise InvalidState(
                "this works only on a host of the lab; unset FARM_API and select the lab with --lab"
            )

    @cached_property
    def store(self) -> "Database":
        """The store, checked once."""
        from orchestrator.store.database import Database

        self._refuse_remote()
        if self._owner is not None:
            return self._owner.store
        if self.lab.has_embedded_store and not self.lab.store_file.exists():
            raise StoreDown(f"the lab in {self.lab.root} has no store yet; {self._start_hint}")
        database = Database(self.lab.store_url)
        database.check()
        return database

    @cached_property
    def broker(self) -> "CentralBroker":
        """The broker, checked once."""
        from orchestrator.dispatch.central_broker import CentralBroker

        self._refuse_remote()
        if self._owner is not None:
            return self._owner.broker
        broker = CentralBroker(self.lab.broker_url)
        try:
            broker.check()
        except BrokerDown as error:
            broker.close()
            if self.lab.has_embedded_broker:
                raise BrokerDown(
                    f"the lab in {self.lab.root} is not up: its broker does not answer; "
                    f"{self._start_hint}"
                ) from error
            raise
        return broker

    @cached_property
    def job_queue(self) -> "JobQueue":
        """The queue that carries jobs and commands to the hosts."""
        from orchestrator.dispatch.job_queue import JobQueue

        self._refuse_remote()
        if self._owner is not None:
            return self._owner.job_queue
        return JobQueue(self.lab.broker_url)

    @cached_property
    def change_logs(self) -> "dict[str | None, LabChangeLog]":
        """The recent states of the lab that its API keeps, by the sweep that is followed."""
        return {} if self._owner is None else self._owner.change_logs

    @property
    def _start_hint(self) -> str:
        return (
            f"start the lab with 'farm up --lab {self.lab.root}', "
            "or select another lab with --lab or FARM_LAB"
        )

    def actor(self, dry_run: bool = False) -> "Actor":
        """The user as the audit log names them."""
        from orchestrator.store.operator_change import Actor

        return Actor(self.user, dry_run)

    def close(self) -> None:
        """Close what was opened; the next use opens it again."""
        if self.remote is not None:
            self.remote.close()
        for name in ("store", "broker"):
            if name in self.__dict__ and self._owner is None:
                self.__dict__.pop(name).close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
