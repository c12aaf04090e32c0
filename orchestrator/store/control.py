"""Decisions of people about sweeps, phones and hosts: each is one transaction, and is written down.

Doing a thing twice is doing it once; what changes nothing leaves no trace. A dry run says the same
words and touches nothing.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, func, select, update

from orchestrator.nouns import RunState, SweepState
from orchestrator.plan.health import Health, Standing
from orchestrator.store import casualties, health
from orchestrator.store.database import Database
from orchestrator.store.tables import audit, host, phone, run, sweep, trial
from workloads.fault import Refused
from workloads.messages import Event
from workloads.text import safe_text

NO_WAY_BACK = "cannot be taken back; 'farm sweep pause' keeps what was not started from starting"
USED_UP = "its budget is used up"
WAITING = (RunState.QUEUED, RunState.HELD)
GIVEN_UP = (RunState.FAILED, RunState.HELD)
Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """What a decision changed, in words and as values, and the command that takes it back."""

    verb: str
    object: str
    before: Facts
    after: Facts
    said: str
    undo: str
    dry_run: bool = False

    @property
    def changed(self) -> bool:
        """Whether anything is (or would be) different now."""
        return self.before != self.after

    @property
    def lines(self) -> tuple[str, ...]:
        """What a person is told: what changed, and how it is taken back."""
        if not self.changed:
            return (f"{self.object}: nothing to {self.verb}; it is so already.",)
        would = "would be done: " if self.dry_run else ""
        way_back = self.undo if self.undo == NO_WAY_BACK else f"undo with: {self.undo}"
        return (f"{self.object}: {would}{self.said}", way_back)

    @property
    def event(self) -> Event:
        """The line for whoever watches; it also wakes the scheduler."""
        of_sweep = self.object if self.object.startswith("sw-") else ""
        text = f"{self.object}: {self.said}"
        return Event(at=datetime.now(UTC), kind="control", text=text, sweep=of_sweep)


@dataclass(frozen=True)
class By:
    """Who decides, and whether it is only a question of what would happen."""

    who: str
    dry_run: bool = False


@dataclass(frozen=True)
class _Plan:
    """A change that was thought through, and how it is made."""

    before: Facts
    after: Facts
    said: str
    undo: str
    apply: Callable[[], object]


def pause(db: Database, sweep_id: str, by: By, why: str = "") -> Change:
    """Start nothing more of a sweep; what runs is finished."""

    def plan(connection: Connection) -> _Plan:
        row = _sweep(connection, sweep_id)
        if row.state == SweepState.CANCELLED:
            raise Refused(f"{sweep_id} is cancelled; there is nothing to pause")
        left = _count(connection, sweep_id, WAITING)
        return _Plan(
            {"state": row.state},
            {"state": SweepState.PAUSED},
            f"paused; {left} runs wait, what runs now is finished",
            f"farm sweep resume {sweep_id}",
            lambda: _set_state(connection, sweep_id, SweepState.PAUSED, why or f"by {by.who}"),
        )

    return _carry_out(db, "pause", sweep_id, by, plan)


def resume(db: Database, sweep_id: str, by: By) -> Change:
    """Let a paused or cancelled sweep go on; what was cancelled is queued again."""

    def plan(connection: Connection) -> _Plan:
        row = _sweep(connection, sweep_id)
        gone = _count(connection, sweep_id, (RunState.CANCELLED,))
        back = "pause" if row.state == SweepState.PAUSED else "cancel"
        more = f", {gone} cancelled runs are queued again" if gone else ""

        # Whoever lets a sweep go on that has used up its budget means it.
        lifted = row.state_why.startswith(USED_UP)
        more += "; its budget is lifted" if lifted else ""

        def apply() -> None:
            _set_state(connection, sweep_id, SweepState.ACTIVE, "")
            if lifted:
                without = {**row.policy, "budget": {}}
                connection.execute(
                    update(sweep).where(sweep.c.id == sweep_id).values(policy=without)
                )
            _requeue(connection, sweep_id, (RunState.CANCELLED,))
            connection.execute(update(run).where(run.c.sweep == sweep_id).values(unwanted=False))

        return _Plan(
            {"state": row.state, "cancelled": gone},
            {"state": SweepState.ACTIVE, "cancelled": 0},
            f"goes on{more}",
            f"farm sweep {back} {sweep_id}",
            apply,
        )

    return _carry_out(db, "resume", sweep_id, by, plan)


def cancel(db: Database, sweep_id: str, by: By) -> Change:
    """Start nothing more of a sweep, and stop what runs; what is stored stays."""

    def plan(connection: Connection) -> _Plan:
        row = _sweep(connection, sweep_id)
        waiting = _count(connection, sweep_id, WAITING)
        mine = (run.c.sweep == sweep_id, run.c.state == RunState.LEASED, ~run.c.unwanted)
        running = connection.execute(select(func.count()).select_from(run).where(*mine)).scalar()

        def apply() -> None:
            _set_state(connection, sweep_id, SweepState.CANCELLED, f"by {by.who}")
            connection.execute(
                update(run)
                .where(run.c.sweep == sweep_id, run.c.state.in_(WAITING))
                .values(state=RunState.CANCELLED, note=f"cancelled by {by.who}")
            )
            connection.execute(update(run).where(*mine).values(unwanted=True))

        return _Plan(
            {"state": row.state, "waiting": waiting, "running": running},
            {"state": SweepState.CANCELLED, "waiting": 0, "running": 0},
            f"cancelled; {waiting} runs will not start, {running} are told to stop",
            f"farm sweep resume {sweep_id}",
            apply,
        )

    return _carry_out(db, "cancel", sweep_id, by, plan)


def retry(db: Database, sweep_id: str, by: By) -> Change:
    """Queue again what failed, was void to the end or is held; what is done stays done."""

    def plan(connection: Connection) -> _Plan:
        row = _sweep(connection, sweep_id)
        if row.state == SweepState.CANCELLED:
            raise Refused(f"{sweep_id} is cancelled; first: farm sweep resume {sweep_id}")
        counts = {str(state): _count(connection, sweep_id, (state,)) for state in sorted(GIVEN_UP)}

        def apply() -> None:
            casualties.forgive(connection, sweep_id)
            _requeue(connection, sweep_id, GIVEN_UP)

        return _Plan(
            counts,
            dict.fromkeys(counts, 0),
            ", ".join(f"{count} {state}" for state, count in counts.items()) + " runs queued again",
            NO_WAY_BACK,
            apply,
        )

    return _carry_out(db, "retry", sweep_id, by, plan)


def set_priority(db: Database, sweep_id: str, priority: int, by: By) -> Change:
    """Give a sweep a larger or smaller share of the lab."""

    def plan(connection: Connection) -> _Plan:
        row = _sweep(connection, sweep_id)
        changes = {"priority": priority, "policy": {**row.policy, "priority": priority}}
        return _Plan(
            {"priority": row.priority},
            {"priority": priority},
            f"priority {row.priority} becomes {priority}",
            f"farm sweep priority {sweep_id} {row.priority}",
            lambda: connection.execute(
                update(sweep).where(sweep.c.id == sweep_id).values(**changes)
            ),
        )

    return _carry_out(db, "reprioritise", sweep_id, by, plan)


def drain(db: Database, name: str, by: By, why: str = "") -> Change:
    """Give a host no more runs; those it makes now are finished."""
    return _drain(db, name, by, drained=True, why=why)


def undrain(db: Database, name: str, by: By) -> Change:
    """Give a host runs again."""
    return _drain(db, name, by, drained=False, why="")


def _drain(db: Database, name: str, by: By, drained: bool, why: str) -> Change:
    verb, back = ("drain", "undrain") if drained else ("undrain", "drain")

    def plan(connection: Connection) -> _Plan:
        row = connection.execute(select(host).where(host.c.name == name)).first()
        seen = connection.execute(select(phone.c.serial).where(phone.c.host == name)).first()
        if row is None and seen is None:
            raise Refused(f"there is no host '{name}'; 'farm agent list' shows all")
        at_work = (run.c.host == name, run.c.state == RunState.LEASED)
        running = connection.execute(select(func.count()).select_from(run).where(*at_work)).scalar()
        said = f"drained; {running} runs are finished, no more are sent" if drained else "works"

        def apply() -> None:
            values = {"drained": drained, "why": safe_text(why, 200)}
            db.insert_new(connection, host, [{"name": name, **values}])
            connection.execute(update(host).where(host.c.name == name).values(**values))

        return _Plan(
            {"drained": bool(row is not None and row.drained)},
            {"drained": drained},
            said,
            f"farm agent {back} {name}",
            apply,
        )

    return _carry_out(db, verb, name, by, plan)


def reserve(
    db: Database, serial: str, person: str, by: By, until: float = 0.0, why: str = ""
) -> Change:
    """Keep a phone for a person, until a moment (0: until it is given back)."""
    person = safe_text(person, 64).strip()
    if not person:
        raise Refused("a phone is reserved for somebody; say for whom")
    end = f" until {datetime.fromtimestamp(until, UTC):%Y-%m-%d %H:%M} UTC" if until else ""
    values = {"reserved_by": person, "reserved_until": until, "reserved_why": safe_text(why, 200)}
    said = f"reserved for {person}{end}; a run it makes now is finished"
    return _set_phone(db, "reserve", serial, by, values, said, f"farm phone unreserve {serial}")


def unreserve(db: Database, serial: str, by: By) -> Change:
    """Give a reserved phone back to the lab."""
    with db.read() as connection:
        row = _phone(connection, serial)
    values = {"reserved_by": "", "reserved_until": 0.0, "reserved_why": ""}
    undo = f"farm phone reserve {serial} --for {row.reserved_by!r}"
    return _set_phone(db, "unreserve", serial, by, values, "gets runs again", undo)


def tag(
    db: Database, serial: str, by: By, add: Collection[str] = (), remove: Collection[str] = ()
) -> Change:
    """Put labels on a phone or take them off; sweeps choose phones by them."""
    with db.read() as connection:
        now = set(_phone(connection, serial).tags)
    then = sorted((now | set(add)) - set(remove))
    back = [*(f"-{name}" for name in set(then) - now), *(now - set(then))]
    undo = f"farm phone tag {serial} {' '.join(sorted(back))}"
    said = f"tagged {', '.join(then) or 'with nothing'}"
    return _set_phone(db, "tag", serial, by, {"tags": then}, said, undo)


def quarantine(db: Database, serial: str, by: By, why: str) -> Change:
    """Give a phone no more runs until somebody releases it."""
    standing = Standing(Health.QUARANTINED, safe_text(why, 400))
    undo = f"farm phone release {serial}"
    return _set_health(db, "quarantine", serial, by, standing, "quarantined", undo)


def release(db: Database, serial: str, by: By) -> Change:
    """Let a phone work again."""
    undo = f"farm phone quarantine {serial} --why ..."
    return _set_health(db, "release", serial, by, Standing(), "gets runs again", undo)


def _set_health(
    db: Database, verb: str, serial: str, by: By, standing: Standing, said: str, undo: str
) -> Change:
    def plan(connection: Connection) -> _Plan:
        row = _phone(connection, serial)
        return _Plan(
            {"health": row.health, "why": row.health_why},
            {"health": str(standing.health), "why": standing.why},
            said,
            undo,
            lambda: health.set_standing(connection, serial, standing),
        )

    return _carry_out(db, verb, serial, by, plan)


def _set_phone(
    db: Database, verb: str, serial: str, by: By, values: Facts, said: str, undo: str
) -> Change:
    def plan(connection: Connection) -> _Plan:
        row = _phone(connection, serial)._mapping
        return _Plan(
            {name: row[name] for name in values},
            values,
            said,
            undo,
            lambda: connection.execute(
                update(phone).where(phone.c.serial == serial).values(**values)
            ),
        )

    return _carry_out(db, verb, serial, by, plan)


def _carry_out(
    db: Database, verb: str, target: str, by: By, think: Callable[[Connection], _Plan]
) -> Change:
    with db.write() as connection:
        plan = think(connection)
        change = Change(verb, target, plan.before, plan.after, plan.said, plan.undo, by.dry_run)
        if change.changed and not by.dry_run:
            plan.apply()
            note(connection, by.who, change)
    return change


def note(connection: Connection, who: str, change: Change) -> None:
    """Write a change down, in the transaction that makes it."""
    row = {
        "at": datetime.now(UTC),
        "who": safe_text(who, 100),
        "verb": change.verb,
        "object": change.object,
        "before": dict(change.before),
        "after": dict(change.after),
        "undo": change.undo,
    }
    connection.execute(audit.insert(), [row])


def _sweep(connection: Connection, sweep_id: str) -> Any:
    row = connection.execute(select(sweep).where(sweep.c.id == sweep_id)).first()
    if row is None:
        raise Refused(f"there is no sweep '{sweep_id}'; 'farm sweep list' shows all")
    return row


def _phone(connection: Connection, serial: str) -> Any:
    row = connection.execute(select(phone).where(phone.c.serial == serial)).first()
    if row is None:
        raise Refused(f"there is no phone '{serial}'; 'farm phone list' shows all")
    return row


def _count(connection: Connection, sweep_id: str, states: Collection[RunState]) -> int:
    mine = (run.c.sweep == sweep_id, run.c.state.in_(states))
    return connection.execute(select(func.count()).select_from(run).where(*mine)).scalar_one()


def _set_state(connection: Connection, sweep_id: str, state: SweepState, why: str) -> None:
    values = {"state": state, "state_why": safe_text(why, 400)}
    connection.execute(update(sweep).where(sweep.c.id == sweep_id).values(**values))


def _requeue(connection: Connection, sweep_id: str, states: Collection[RunState]) -> None:
    """Put runs back in the line, with a clean record; their attempts go on counting."""
    open_ = select(trial.c.id).where(trial.c.sweep == sweep_id, trial.c.stopped == "")
    connection.execute(
        update(run)
        .where(run.c.sweep == sweep_id, run.c.state.in_(states), run.c.trial.in_(open_))
        .values(state=RunState.QUEUED, tries={}, note="", not_before=0.0, unwanted=False)
    )
