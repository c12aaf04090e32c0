"""The structure of the code: import rules, names, and where libraries are used."""

import ast
import functools
import importlib
import inspect
import re
from pathlib import Path

import pytest

from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.operation import OPERATIONS

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("agent", "kernels", "orchestrator", "workloads")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))

# Every external library is imported in one or two places, which translate its errors.
LIBRARY_USERS = {
    "celery": {
        "orchestrator/dispatch/job_queue.py",
        "agent/worker.py",
        "workloads/celery_setup.py",
    },
    "kombu": {"orchestrator/dispatch/job_queue.py", "agent/worker.py", "workloads/celery_setup.py"},
    "redis": {"workloads/redis_connection.py"},
    "cryptography": {"workloads/certificates.py"},
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
    "starlette": {"orchestrator/api/"},
    "uvicorn": {"orchestrator/api/"},
    "prometheus_client": {"workloads/service_metrics.py"},
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
    "app": {
        *("sweepfile", "planning", "decisions", "analysis", "selection", "study", "export"),
        *("store", "dispatch"),
    },
    # The user interfaces call operations of app/ and nothing below; decisions/ has the state enums.
    "supervisor": {"app"},
    "tui": {"app", "decisions"},
    "api": {"app"},
    "commands": {"api", "app", "decisions", "supervisor", "tui"},
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
    "commission": {"lane", "lane_context"},
    "phone_problems": set(),
    "phone_slot": {"lane_status"},
    "phone_registry": {"phone_problems", "phone_slot", "timed_places"},
    "timed_places": set(),
    "spool": set(),
    "host_broker": set(),
    "outbox": {"host_broker", "spool"},
    "host": {
        *("commission", "host_broker", "lane", "lane_context", "outbox"),
        *("phone_registry", "phone_slot", "spool"),
    },
    "worker": {"host"},
    "cli": {"host", "worker"},
    "join_cli": {"join_lab"},
    "join_lab": set(),
    "deadline": set(),
    "timeouts": set(),
}


@functools.cache
def imports_of(path: Path) -> set[str]:
    """Return every module that a file imports, anywhere in the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return found


def relative(path: Path) -> str:
    """Return the path of a file as the tables above name it."""
    return path.relative_to(ROOT).as_posix()


def is_in(module: str, *prefixes: str) -> bool:
    """Whether a module is one of these or in one of them."""
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes)


def fail_on(rule: str, violations: dict[str, set[str]]) -> None:
    """Fail with one line per violation of a rule."""
    lines = [
        f"{file} imports {', '.join(sorted(modules))}: {rule}"
        for file, modules in violations.items()
        if modules
    ]
    if lines:
        pytest.fail("\n".join(lines))


def own_imports(path: Path) -> set[str]:
    """Return what a file imports of this project."""
    return {module for module in imports_of(path) if is_in(module, *PACKAGES)}


@pytest.mark.parametrize(
    ("package", "allowed"),
    [
        ("workloads", ("workloads",)),
        ("kernels", ("kernels", "workloads")),
        ("agent", ("agent", "kernels", "workloads")),
        ("orchestrator", ("orchestrator", "kernels", "workloads")),
    ],
)
def test_packages_import_only_what_they_may(package: str, allowed: tuple[str, ...]) -> None:
    inside = [path for path in FILES if relative(path).startswith(f"{package}/")]
    assert inside
    fail_on(
        f"{package} may import {', '.join(allowed)}",
        {
            relative(path): {m for m in own_imports(path) if not is_in(m, *allowed)}
            for path in inside
        },
    )


def test_a_virtual_phone_shares_no_code_with_what_it_fakes() -> None:
    allowed = ("agent.virtual", "workloads.units", "workloads.text", "workloads.catalogue")
    allowed += ("kernels.pocl",)  # where the system keeps a driver is nothing that is faked
    inside = [path for path in FILES if relative(path).startswith("agent/virtual/")]
    fail_on(
        "a fake that shares code proves only that the code equals itself",
        {
            relative(path): {m for m in own_imports(path) if not is_in(m, *allowed)}
            - {"agent", "workloads"}
            for path in inside
        },
    )
    outside = [path for path in FILES if path not in inside]
    fail_on(
        "no other code may depend on virtual phones",
        {
            relative(path): {m for m in own_imports(path) if is_in(m, "agent.virtual")}
            for path in outside
        },
    )


@pytest.mark.parametrize("library", sorted(LIBRARY_USERS))
def test_an_external_library_is_imported_in_its_place(library: str) -> None:
    users = LIBRARY_USERS[library]
    fail_on(
        f"{library} may be imported in {' or '.join(sorted(users))}",
        {
            relative(path): {module for module in imports_of(path) if is_in(module, library)}
            for path in FILES
            if not any(
                relative(path) == user or (user.endswith("/") and relative(path).startswith(user))
                for user in users
            )
        },
    )


@pytest.mark.parametrize("package", sorted(LAYERS))
def test_the_orchestrator_imports_downwards_only(package: str) -> None:
    above = [f"orchestrator.{name}" for name in set(LAYERS) - LAYERS[package] - {package}]
    inside = [path for path in FILES if relative(path).startswith(f"orchestrator/{package}/")]
    fail_on(
        f"{package} may import {', '.join(sorted(LAYERS[package])) or 'no other package'}",
        {relative(path): {m for m in imports_of(path) if is_in(m, *above)} for path in inside},
    )


@pytest.mark.parametrize("package", sorted(AGENT_LAYERS))
def test_the_packages_of_the_agent_import_one_way(package: str) -> None:
    allowed = [f"agent.{name}" for name in {package, *AGENT_LAYERS[package], *AGENT_BASE}]
    inside = [path for path in FILES if relative(path).startswith(f"agent/{package}/")]
    assert inside
    fail_on(
        f"agent/{package} may import {', '.join(sorted(allowed))}",
        {
            relative(path): {
                m for m in own_imports(path) if is_in(m, "agent") and not is_in(m, *allowed)
            }
            for path in inside
        },
    )


def test_the_root_modules_of_the_agent_are_listed_and_import_one_way() -> None:
    modules = {path.stem: path for path in (ROOT / "agent").glob("*.py")}
    assert modules.keys() == {"__init__", *AGENT_ROOT}
    packages = {path.name for path in (ROOT / "agent").iterdir() if (path / "__init__.py").exists()}
    assert packages == {"virtual", *AGENT_LAYERS}
    violations = {}
    for name, allowed in AGENT_ROOT.items():
        others = [f"agent.{other}" for other in set(AGENT_ROOT) - allowed - AGENT_BASE - {name}]
        violations[f"agent/{name}.py"] = {
            m for m in own_imports(modules[name]) if is_in(m, *others)
        }
    fail_on("a root module may import only those that AGENT_ROOT lists for it", violations)


@pytest.mark.parametrize(
    "package",
    [
        *("orchestrator/sweepfile", "orchestrator/planning", "orchestrator/decisions"),
        "orchestrator/analysis",
    ],
)
def test_decisions_are_pure(package: str) -> None:
    outside = ("socket", "subprocess", "threading", "sqlite3", "requests", "http", "time")
    fail_on(
        "decisions are pure",
        {
            relative(path): {module for module in imports_of(path) if is_in(module, *outside)}
            for path in (ROOT / package).rglob("*.py")
        },
    )


# The modules directly in workloads/. Those with a reason use more than the modules below.
WORKLOADS_ROOT = {
    "__init__": "",
    "basic_steps": "",
    "catalogue": "",
    "certificates": "creates the certificates of a lab, with the library cryptography",
    "cli_options": "options of the command line, with the library click",
    "celery_setup": "configures Celery, which both sides use as transport",
    "connection_url": "reads passwords from their files",
    "data_columns": "",
    "dataset_files": "",
    "external_program": "",
    "graph": "",
    "identity": "",
    "input_file": "reads files that a user names",
    "lab_settings": "reads lab.toml, and opens the broker's folder where its path is too long",
    "logging_setup": "configures the log of a service",
    "memory_budget": "",
    "phone_address": "",
    "process_identity": "reads the installed version, and draws the id of a process",
    "program_output": "",
    "run_options": "",
    "service_health": "serves the health of a process over HTTP",
    "service_metrics": "counts in memory, with the library prometheus_client",
    "service_settings": "",
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
    *(
        "difflib",
        "enum",
        "functools",
        "importlib",
        "gzip",
        "hashlib",
        "ipaddress",
        "itertools",
        "json",
        "math",
        "re",
    ),
    *("statistics", "string", "struct", "typing", "unicodedata", "lzma", "pydantic", "workloads"),
)
IMPURE_CALLS = {"open", "print", "input", "now", "today", "utcnow"}


def test_workloads_are_pure() -> None:
    """The protocol, the models and their lowering are computed from their arguments alone."""
    root = ROOT / "workloads"
    assert {path.stem for path in root.glob("*.py")} == set(WORKLOADS_ROOT)
    impure = {root / f"{name}.py" for name, reason in WORKLOADS_ROOT.items() if reason}
    pure = [path for path in root.rglob("*.py") if path not in impure]
    impure_modules = [f"workloads.{path.stem}" for path in impure]
    fail_on(
        "only files with a reason in WORKLOADS_ROOT may use files, clocks or networks",
        {
            relative(path): {
                module
                for module in imports_of(path)
                if not is_in(module, *PURE_MODULES) or is_in(module, *impure_modules)
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
        assert not calls & IMPURE_CALLS, f"{relative(path)} calls {calls & IMPURE_CALLS}"


def test_the_environment_is_read_at_the_command_line_only() -> None:
    readers = ("cli.py", "commands/", "supervisor/process.py", "phone/adb.py")
    readers += (
        "tui/watch_loop.py",
        "native/opencl_library.py",
        "native/host_nodes.py",
        "kernels/pocl.py",
    )
    for path in FILES:
        if "os.environ" in path.read_text() and not any(
            reader in relative(path) for reader in readers
        ):
            pytest.fail(f"{relative(path)} reads os.environ: settings are read once and passed on")


# Where text of kernels, daemons, drivers and libraries is parsed.
EXTERNAL_TEXTS = {
    "agent/phone/thermalservice.py": "headings of dumpsys thermalservice",
    "agent/restore/reversible_change.py": "names of Android settings",
    "agent/prepare/quiesce.py": "names of Android settings",
    "agent/virtual/": "a phone prints what Android prints",
    "kernels/harness/opencl_device.py": "names of OpenCL platforms",
}
PROSE = re.compile(r"[A-Za-z']{2,}[,:;]? [A-Za-z']{2,}")
TEXT_TESTS = {"startswith", "endswith", "find", "index", "count", "partition", "rpartition"}


def constants_of(tree: ast.Module) -> dict[str, list[str]]:
    """Return the texts of a module's constants."""
    return {
        target.id: texts_in(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value, (ast.Constant, ast.Tuple))
    }


def texts_in(node: ast.AST) -> list[str]:
    """Return every text in an expression."""
    return [
        part.value
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]


@functools.cache
def error_names() -> frozenset[str]:
    """Return the name of every exception of the product."""
    bases = {
        node.name: {ast.unparse(base) for base in node.bases}
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    errors = {"Exception"}
    while more := {name for name, parents in bases.items() if parents & errors} - errors:
        errors |= more
    return frozenset(errors)


def compared_texts(tree: ast.Module) -> list[str]:
    """Return the texts that a module compares something with."""
    constants = constants_of(tree)
    texts: list[str] = []
    for node in ast.walk(tree):
        operands: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            operands = node.args if node.func.attr in TEXT_TESTS else []
        for operand in operands:
            texts += texts_in(operand)
            names = [part.id for part in ast.walk(operand) if isinstance(part, ast.Name)]
            texts += [text for name in names for text in constants.get(name, [])]
    return texts


def test_nothing_is_decided_by_a_sentence_or_by_the_name_of_an_error() -> None:
    for path in FILES:
        if relative(path).startswith(tuple(EXTERNAL_TEXTS)):
            continue
        for text in compared_texts(ast.parse(path.read_text())):
            assert not PROSE.search(text), f"{relative(path)} compares with {text!r}: use a code"
            assert text not in error_names(), (
                f"{relative(path)} compares with {text!r}: use an enum"
            )


def test_phones_are_never_called_devices() -> None:
    word = re.compile(r"\b(class|def) \w*[dD]evice")
    # adb and OpenCL have devices.
    elsewhere = ("agent/virtual/", "kernels/harness/")
    for path in FILES:
        if not relative(path).startswith(elsewhere):
            assert not word.search(path.read_text()), f"{relative(path)}: call it phone (or gpu)"


def test_nothing_is_left_unfinished() -> None:
    mark = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
    for path in (*FILES, *(ROOT / "tests").rglob("*.py"), *ROOT.glob("*.md")):
        assert not mark.search(path.read_text()), f"{relative(path)} has an unfinished mark"


def test_packages_resolve_inside_this_repository() -> None:
    for package in PACKAGES:
        module = __import__(package)
        assert ROOT in Path(str(module.__file__)).parents


# Module names that occur more than once, each with the reason.
REPEATED_MODULES = {
    "__init__": "Python's name for a package",
    "__main__": "Python's name for a package that can be run",
    "cli": "the command line of a package that can be run by itself",
    "metrics": "the catalogue of metrics, and the command that prints it",
    "workload": "the type, and the command that shows it",
}


def test_no_class_name_occurs_twice() -> None:
    places: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(relative(path))
    assert not {name: files for name, files in places.items() if len(files) > 1}


def test_no_module_name_occurs_twice() -> None:
    places: dict[str, list[str]] = {}
    for path in FILES:
        places.setdefault(path.stem, []).append(relative(path))
    repeated = {name: files for name, files in places.items() if len(files) > 1}
    assert repeated.keys() == REPEATED_MODULES.keys(), repeated


def test_only_the_command_line_is_at_the_root_of_the_orchestrator() -> None:
    modules = {path.stem for path in (ROOT / "orchestrator").glob("*.py")}
    assert modules == {"__init__", "__main__", "cli"}
    packages = {path.parent.name for path in (ROOT / "orchestrator").glob("*/__init__.py")}
    assert packages == LAYERS.keys()


# Functions of app/ that take a lab and are not operations, each with the reason.
NOT_OPERATIONS = {
    "authenticate": "comes before every operation of the API",
    "begin_session": "has a code in place of a token",
    "enrol_host": "has a secret in place of a token",
    "open_poller": "polls an operation",
    "publish_change": "part of the operations that change something",
    "run_ingest": "runs a service",
    "run_scheduler": "runs a service",
    "wait_for_sweeps": "polls an operation",
}


def test_every_public_function_that_takes_a_lab_is_an_operation() -> None:
    for path in (ROOT / "orchestrator/app").glob("*.py"):
        module = importlib.import_module(f"orchestrator.app.{path.stem}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ != module.__name__ or name.startswith("_"):
                continue
            parameters = list(inspect.signature(function).parameters.values())
            if parameters and parameters[0].annotation is LabConnection:
                assert name in OPERATIONS or name in NOT_OPERATIONS, name
