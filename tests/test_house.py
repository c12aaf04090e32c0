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
    "celery": {
        "orchestrator/dispatch/job_queue.py",
        "agent/worker.py",
        "workloads/celery_setup.py",
    },
    "kombu": {"orchestrator/dispatch/job_queue.py", "agent/worker.py", "workloads/celery_setup.py"},
    "redis": {"workloads/redis_connection.py"},
    "sqlmodel": {"orchestrator/store/tables.py", "orchestrator/store/migrations/env.py"},
    "sqlalchemy": {"orchestrator/store/"},
    "alembic": {"orchestrator/store/"},
    "adbutils": {"agent/phone/adb.py"},
    "rich": {"orchestrator/tui/", "orchestrator/commands/"},
    "jinja2": {"orchestrator/export/"},
    "pyarrow": {"orchestrator/export/"},
    "scipy": {"orchestrator/analysis/", "orchestrator/selection/"},
    "yaml": {"orchestrator/sweepfile/"},
    "pyopencl": {"kernels/harness/opencl_device.py"},
    "asyncio": {"agent/virtual/"},
}

# Inside the orchestrator imports go one way: a package may import itself and those named here.
LAYERS = {
    "sweepfile": set(),
    "planning": {"sweepfile"},
    "decisions": {"sweepfile"},
    "analysis": {"decisions"},
    "selection": {"analysis"},
    "study": {"analysis", "decisions"},
    "export": {"analysis", "decisions", "selection", "study"},
    "store": {"sweepfile", "planning", "decisions", "analysis"},
    "dispatch": {"sweepfile", "planning", "decisions", "store"},
    "supervisor": {"app", "dispatch", "store", "decisions"},
    "app": {
        *("sweepfile", "planning", "decisions", "analysis", "selection", "study", "export"),
        *("store", "dispatch"),
    },
    "tui": {"app", "sweepfile", "dispatch", "store", "analysis", "decisions"},
    "commands": {
        *("app", "sweepfile", "planning", "decisions", "analysis", "selection", "study"),
        *("export", "store", "dispatch", "supervisor", "tui"),
    },
}

# Inside the agent, too: the packages follow the stages of a job. A package may import itself, those
# named here, and the root modules that every package may import.
AGENT_LAYERS = {
    "phone": set(),
    "restore": {"phone"},
    "prepare": {"phone", "restore"},
    "collect": {"phone", "restore"},
    "launch": {"phone", "restore", "collect"},
    "judge": {"phone", "collect", "launch"},
}
AGENT_BASE = {"deadline", "timeouts"}
# The root modules, each with the other root modules that it may import; packages never import them.
AGENT_ROOT = {
    "lane_status": set(),
    "lane_stages": {"lane_status"},
    "lane_context": {"lane_status"},
    "lane": {"lane_context", "lane_stages"},
    "phone_registry": {"lane_status"},
    "spool": set(),
    "host_broker": set(),
    "outbox": {"host_broker", "spool"},
    "host": {"host_broker", "lane", "lane_context", "outbox", "phone_registry", "spool"},
    "worker": {"host"},
    "cli": {"host", "worker"},
    "deadline": set(),
    "timeouts": set(),
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


@pytest.mark.parametrize("room", sorted(LAYERS))
def test_the_orchestrator_imports_downwards_only(room: str) -> None:
    above = [f"orchestrator.{name}" for name in set(LAYERS) - LAYERS[room] - {room}]
    inside = [path for path in FILES if place(path).startswith(f"orchestrator/{room}/")]
    broken(
        f"{room} may import {', '.join(sorted(LAYERS[room])) or 'no other package'}",
        {place(path): {m for m in imports_of(path) if starts(m, *above)} for path in inside},
    )


@pytest.mark.parametrize("package", sorted(AGENT_LAYERS))
def test_the_packages_of_the_agent_import_one_way(package: str) -> None:
    may = [f"agent.{name}" for name in {package, *AGENT_LAYERS[package], *AGENT_BASE}]
    inside = [path for path in FILES if place(path).startswith(f"agent/{package}/")]
    assert inside
    broken(
        f"agent/{package} may import {', '.join(sorted(may))}",
        {
            place(path): {m for m in ours(path) if starts(m, "agent") and not starts(m, *may)}
            for path in inside
        },
    )


def test_the_root_modules_of_the_agent_are_listed_and_import_one_way() -> None:
    modules = {path.stem: path for path in (ROOT / "agent").glob("*.py")}
    assert modules.keys() == {"__init__", *AGENT_ROOT}
    packages = {path.name for path in (ROOT / "agent").iterdir() if (path / "__init__.py").exists()}
    assert packages == {"virtual", *AGENT_LAYERS}
    breaches = {}
    for name, may in AGENT_ROOT.items():
        others = [f"agent.{other}" for other in set(AGENT_ROOT) - may - AGENT_BASE - {name}]
        breaches[f"agent/{name}.py"] = {m for m in ours(modules[name]) if starts(m, *others)}
    broken("a root module may import only those that AGENT_ROOT lists for it", breaches)


@pytest.mark.parametrize(
    "room",
    [
        *("orchestrator/sweepfile", "orchestrator/planning", "orchestrator/decisions"),
        "orchestrator/analysis",
    ],
)
def test_decisions_touch_nothing_outside(room: str) -> None:
    outside = ("socket", "subprocess", "threading", "sqlite3", "requests", "http", "time")
    broken(
        "decisions are pure",
        {
            place(path): {module for module in imports_of(path) if starts(module, *outside)}
            for path in (ROOT / room).rglob("*.py")
        },
    )


# The modules directly in workloads/. Those with a reason use more than the modules below.
WORKLOADS_ROOT = {
    "__init__": "",
    "basic_steps": "",
    "catalogue": "",
    "celery_setup": "configures Celery, which both sides use as transport",
    "data_columns": "",
    "dataset_files": "",
    "external_program": "",
    "graph": "",
    "identity": "",
    "lab_settings": "reads lab.toml, and opens the broker's folder where its path is too long",
    "logging_setup": "configures the log of a service",
    "memory_budget": "",
    "program_output": "",
    "redis_connection": "connects to Redis, and translates its errors",
    "step_cost": "",
    "text": "",
    "training": "",
    "units": "",
    "workload": "",
    "workload_table": "",
}
PURE_MODULES = (
    *("abc", "base64", "bisect", "collections", "contextlib", "dataclasses", "datetime"),
    *("difflib", "enum", "functools", "gzip", "hashlib", "itertools", "json", "math", "re"),
    *("statistics", "string", "struct", "typing", "unicodedata", "zlib", "pydantic", "workloads"),
)
IMPURE_CALLS = {"open", "print", "input", "now", "today", "utcnow"}


def test_workloads_touch_nothing_outside() -> None:
    """The protocol, the models and their lowering are computed from their arguments alone."""
    root = ROOT / "workloads"
    assert {path.stem for path in root.glob("*.py")} == set(WORKLOADS_ROOT)
    impure = {root / f"{name}.py" for name, reason in WORKLOADS_ROOT.items() if reason}
    pure = [path for path in root.rglob("*.py") if path not in impure]
    impure_modules = [f"workloads.{path.stem}" for path in impure]
    broken(
        "only files with a reason in WORKLOADS_ROOT may use files, clocks or networks",
        {
            place(path): {
                module
                for module in imports_of(path)
                if not starts(module, *PURE_MODULES) or starts(module, *impure_modules)
            }
            for path in pure
        },
    )
    for path in pure:
        calls = {
            node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute)
        }
        assert not calls & IMPURE_CALLS, f"{place(path)} calls {calls & IMPURE_CALLS}"


def test_the_environment_is_read_at_the_command_line_only() -> None:
    doors = ("cli.py", "commands/", "supervisor/process.py", "phone/adb.py", "tui/watch_loop.py")
    doors += (
        "native/opencl_library.py",
    )  # which library this host has for OpenCL is its own affair
    for path in FILES:
        if "os.environ" in path.read_text() and not any(door in place(path) for door in doors):
            pytest.fail(f"{place(path)} reads os.environ: settings are read once and handed down")


# Where the words of others are read: kernels, daemons, drivers and libraries.
FOREIGN_WORDS = {
    "agent/phone/thermalservice.py": "headings of dumpsys thermalservice",
    "agent/restore/reversible_change.py": "names of Android settings",
    "agent/prepare/quiesce.py": "names of Android settings",
    "agent/virtual/": "a phone speaks Android's words",
    "kernels/harness/opencl_device.py": "names of OpenCL platforms",
}
PROSE = re.compile(r"[A-Za-z']{2,}[,:;]? [A-Za-z']{2,}")
TEXT_TESTS = {"startswith", "endswith", "find", "index", "count", "partition", "rpartition"}


def constants_of(tree: ast.Module) -> dict[str, list[str]]:
    """The texts behind a module's upper-case names."""
    return {
        target.id: texts_in(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value, (ast.Constant, ast.Tuple))
    }


def texts_in(node: ast.AST) -> list[str]:
    """Every text that an expression spells out."""
    return [
        part.value
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]


@functools.cache
def error_names() -> frozenset[str]:
    """Every exception of the product."""
    bases = {
        node.name: {ast.unparse(base) for base in node.bases}
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    errors = {"Exception"}
    while more := {name for name, of in bases.items() if of & errors} - errors:
        errors |= more
    return frozenset(errors)


def compared_texts(tree: ast.Module) -> list[str]:
    """The texts that a module compares something with."""
    known = constants_of(tree)
    found: list[str] = []
    for node in ast.walk(tree):
        operands: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            operands = node.args if node.func.attr in TEXT_TESTS else []
        for operand in operands:
            found += texts_in(operand)
            names = [part.id for part in ast.walk(operand) if isinstance(part, ast.Name)]
            found += [text for name in names for text in known.get(name, [])]
    return found


def test_nothing_is_decided_by_a_sentence_or_by_the_name_of_an_error() -> None:
    for path in FILES:
        if place(path).startswith(tuple(FOREIGN_WORDS)):
            continue
        for text in compared_texts(ast.parse(path.read_text())):
            assert not PROSE.search(text), f"{place(path)} compares with {text!r}: use a code"
            assert text not in error_names(), f"{place(path)} compares with {text!r}: use an enum"


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
