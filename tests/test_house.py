"""The house rules, checked: who may import whom, and through which doors libraries come in."""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("agent", "kernels", "orchestrator", "workloads")
FILES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))

# One foreign library, one or two doors.
DOORS = {
    "celery": {"orchestrator/dispatch/queue.py", "agent/worker.py", "workloads/consumer.py"},
    "kombu": {"orchestrator/dispatch/queue.py", "agent/worker.py", "workloads/consumer.py"},
    "redis": {"orchestrator/dispatch/broker.py", "agent/broker.py"},
    "sqlmodel": {"orchestrator/store/tables.py", "orchestrator/store/migrations/env.py"},
    "sqlalchemy": {"orchestrator/store/"},
    "alembic": {"orchestrator/store/"},
    "adbutils": {"agent/phone/adb.py"},
    "rich": {"orchestrator/tui/", "orchestrator/commands/"},
    "jinja2": {"orchestrator/export/"},
    "pyarrow": {"orchestrator/export/"},
    "scipy": {"orchestrator/analysis/", "orchestrator/selection/"},
    "yaml": {"orchestrator/plan/"},
    "pyopencl": {"kernels/harness/device.py"},
    "asyncio": {"agent/virtual/"},
}

# Inside the middle, downwards only: a room may import itself and the rooms named here.
MIDDLE = {
    "plan": set(),
    "analysis": set(),
    "selection": {"analysis"},
    "study": {"analysis"},
    "export": {"analysis", "selection", "study"},
    "store": {"plan"},
    "dispatch": {"store"},
    "lab": {"dispatch", "store"},
    "tui": {"plan", "dispatch", "store", "analysis"},
    "commands": {
        *("plan", "analysis", "selection", "study", "export", "store", "dispatch", "lab", "tui")
    },
}


@functools.cache
def imports_of(path: Path) -> set[str]:
    """Every module that a file imports, wherever in the file it does."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return found


def place(path: Path) -> str:
    """A file as the tables above name it."""
    return path.relative_to(ROOT).as_posix()


def starts(module: str, *prefixes: str) -> bool:
    """Whether a module is one of these or lies in one of them."""
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes)


def broken(rule: str, breaches: dict[str, set[str]]) -> None:
    """Fail with a sentence a breach."""
    sentences = [
        f"{file} imports {', '.join(sorted(modules))}: {rule}"
        for file, modules in breaches.items()
        if modules
    ]
    if sentences:
        pytest.fail("\n".join(sentences))


def ours(path: Path) -> set[str]:
    """What a file imports of the farm itself."""
    return {module for module in imports_of(path) if starts(module, *ROOMS)}


@pytest.mark.parametrize(
    ("room", "may"),
    [
        ("workloads", ("workloads",)),  # what is spoken knows nobody
        ("kernels", ("kernels", "workloads")),  # what runs on the phone
        ("agent", ("agent", "kernels", "workloads")),  # never the middle
        ("orchestrator", ("orchestrator", "kernels", "workloads")),  # never the agent
    ],
)
def test_rooms_import_only_what_they_may(room: str, may: tuple[str, ...]) -> None:
    inside = [path for path in FILES if place(path).startswith(f"{room}/")]
    assert inside
    broken(
        f"{room} may import {', '.join(may)}",
        {place(path): {m for m in ours(path) if not starts(m, *may)} for path in inside},
    )


def test_a_virtual_phone_shares_no_code_with_what_it_fakes() -> None:
    may = ("agent.virtual", "workloads.units", "workloads.text", "workloads.catalogue")
    inside = [path for path in FILES if place(path).startswith("agent/virtual/")]
    broken(
        "a fake that shares code proves only that the code equals itself",
        {
            place(path): {m for m in ours(path) if not starts(m, *may)} - {"agent", "workloads"}
            for path in inside
        },
    )
    outside = [path for path in FILES if path not in inside]
    broken(
        "nothing in the farm may know that a phone is virtual",
        {place(path): {m for m in ours(path) if starts(m, "agent.virtual")} for path in outside},
    )


@pytest.mark.parametrize("library", sorted(DOORS))
def test_a_foreign_library_comes_in_through_its_door(library: str) -> None:
    doors = DOORS[library]
    broken(
        f"the door of {library} is {' or '.join(sorted(doors))}",
        {
            place(path): {module for module in imports_of(path) if starts(module, library)}
            for path in FILES
            if not any(
                place(path) == door or (door.endswith("/") and place(path).startswith(door))
                for door in doors
            )
        },
    )


@pytest.mark.parametrize("room", sorted(MIDDLE))
def test_the_middle_imports_downwards_only(room: str) -> None:
    above = [f"orchestrator.{name}" for name in set(MIDDLE) - MIDDLE[room] - {room}]
    inside = [path for path in FILES if place(path).startswith(f"orchestrator/{room}/")]
    broken(
        f"{room} may import {', '.join(sorted(MIDDLE[room])) or 'no other room'}",
        {place(path): {m for m in imports_of(path) if starts(m, *above)} for path in inside},
    )


@pytest.mark.parametrize("room", ["orchestrator/plan", "orchestrator/analysis", "workloads"])
def test_decisions_touch_nothing_outside(room: str) -> None:
    outside = ("socket", "subprocess", "threading", "sqlite3", "requests", "http", "time")
    broken(
        "decisions are pure",
        {
            place(path): {module for module in imports_of(path) if starts(module, *outside)}
            for path in (ROOT / room).rglob("*.py")
        },
    )


def test_the_environment_is_read_at_the_command_line_only() -> None:
    doors = ("cli.py", "commands/", "lab/children.py", "phone/adb.py", "tui/follow.py")
    doors += ("native/vendor.py",)  # which library this host has for OpenCL is its own affair
    for path in FILES:
        if "os.environ" in path.read_text() and not any(door in place(path) for door in doors):
            pytest.fail(f"{place(path)} reads os.environ: settings are read once and handed down")


def test_phones_are_never_called_devices() -> None:
    word = re.compile(r"\b(class|def) \w*[dD]evice")
    # There adb's own words are spoken, and OpenCL's.
    elsewhere = ("agent/virtual/", "kernels/harness/")
    for path in FILES:
        if not place(path).startswith(elsewhere):
            assert not word.search(path.read_text()), f"{place(path)}: say phone (or gpu)"


def test_nothing_is_left_unfinished() -> None:
    mark = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
    for path in (*FILES, *(ROOT / "tests").rglob("*.py"), *ROOT.glob("*.md")):
        assert not mark.search(path.read_text()), f"{place(path)} has an unfinished mark"


def test_packages_resolve_inside_this_repository() -> None:
    for room in ROOMS:
        module = __import__(room)
        assert ROOT in Path(str(module.__file__)).parents
