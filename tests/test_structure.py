"""The structure of the code: import rules, and where libraries are used."""

import ast
import dis
import functools
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from orchestrator.app.lab_connection import LabConnection
from orchestrator.app.operation import OPERATIONS
from orchestrator.app.remote.operation_types import load_operations
from tests.line_counts import CEILINGS, measured_sizes, package_sizes, read_ceilings
from tests.source_files import FILES, PACKAGES, ROOT, relative

# Every external library is imported in one or two places, which translate its errors.
LIBRARY_USERS = {
    "celery": {
        "orchestrator/dispatch/job_queue.py",
        "agent/worker.py",
        "workloads/lab/celery_setup.py",
    },
    "kombu": {
        "orchestrator/dispatch/job_queue.py",
        "agent/worker.py",
        "workloads/lab/celery_setup.py",
    },
    "redis": {"workloads/lab/redis_connection.py"},
    "cryptography": {"workloads/lab/certificates.py"},
    "sqlmodel": {"orchestrator/store/tables.py", "orchestrator/store/migrations/env.py"},
    "sqlalchemy": {"orchestrator/store/"},
    "alembic": {"orchestrator/store/"},
    "adbutils": {"agent/phone/adb.py"},
    "rich": {"orchestrator/tui/", "orchestrator/commands/"},
    "jinja2": {"orchestrator/export/"},
    "pyarrow": {"orchestrator/export/"},
    "pandas": {"orchestrator/client/"},
    "scipy": {"orchestrator/analysis/", "orchestrator/selection/"},
    "yaml": {"orchestrator/sweepfile/"},
    "pyopencl": {"kernels/harness/opencl_device.py"},
    "asyncio": {"agent/virtual/"},
    "starlette": {"orchestrator/api/"},
    "uvicorn": {"orchestrator/api/"},
    "prometheus_client": {"workloads/lab/service_metrics.py"},
}

# Inside the orchestrator imports go one way: a package may import itself and those named here.
LAYERS = {
    "sweepfile": set(),
    "planning": {"sweepfile"},
    "analysis": {"planning"},
    "selection": {"analysis"},
    "study": {"analysis", "planning"},
    "export": {"analysis", "planning", "selection", "study"},
    "store": {"sweepfile", "planning", "analysis"},
    "dispatch": {"sweepfile", "planning", "store"},
    "app": {
        *("sweepfile", "planning", "analysis", "selection", "study", "export"),
        *("store", "dispatch"),
    },
    # The user interfaces call operations of app/ and nothing below; planning/ has the state enums.
    "supervisor": {"app"},
    "tui": {"app", "planning"},
    "api": {"app"},
    "client": {"app"},
    "commands": {"api", "app", "planning", "supervisor", "tui"},
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
    "host_settings": set(),
    "heartbeat": {"host_broker", "host_settings", "phone_registry", "phone_slot"},
    "host": {
        *("commission", "heartbeat", "host_broker", "host_settings", "lane", "lane_context"),
        *("outbox", "phone_registry", "phone_slot", "spool"),
    },
    "worker": {"host", "host_settings"},
    "cli": {"host_settings", "worker"},
    "try_phone": {"commission", "lane", "lane_context"},
    "try_cli": {"cli", "lane_context", "try_phone"},
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
    allowed += ("workloads.cli_options",)  # bounds of options are nothing that is faked
    allowed += ("workloads.command_output",)  # nor is what a command says to a person
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
    "package", ["orchestrator/sweepfile", "orchestrator/planning", "orchestrator/analysis"]
)
def test_packages_of_decisions_are_pure(package: str) -> None:
    outside = ("socket", "subprocess", "threading", "sqlite3", "requests", "http", "time")
    fail_on(
        "decisions are pure",
        {
            relative(path): {module for module in imports_of(path) if is_in(module, *outside)}
            for path in (ROOT / package).rglob("*.py")
        },
    )


# A rule is in the module of the transaction that applies it. Both are functions of their arguments,
# but the rule may use neither the database nor a clock.
RULES = {
    "orchestrator.store.budget": ("exceeded_budget",),
    "orchestrator.store.metric_checks": ("metric_objection",),
    "orchestrator.store.notices": ("new_conditions",),
    "orchestrator.app.services.notice_service": ("lasting_conditions", "present_conditions"),
    "orchestrator.store.phone_health": (
        "health_after_check",
        "health_after_flaps",
        "health_after_report",
    ),
    "orchestrator.store.poison": ("crash_in", "poison_evidence"),
    "orchestrator.store.retry": ("decide_retry",),
    "orchestrator.store.stop_rule": ("decide_stop",),
    "orchestrator.dispatch.fair_share": ("assign_runs",),
    "orchestrator.dispatch.heartbeat_summary": ("clock_skews", "summarize_heartbeats"),
}
_OUTSIDE = ("sqlalchemy", "time", "random", "secrets", "socket", "threading", "subprocess")


def _uses(function: FunctionType) -> Iterator[tuple[str, object]]:
    """Yield the name and value of every global that a function uses, and every attribute's name.

    Functions of its module are followed.
    """
    seen: set[str] = set()
    waiting = [function.__code__]
    while waiting:
        code = waiting.pop()
        waiting += [item for item in code.co_consts if isinstance(item, CodeType)]
        for instruction in dis.get_instructions(code):
            name = str(instruction.argval)
            if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                yield name, None
            if instruction.opname != "LOAD_GLOBAL" or name in seen:
                continue
            seen.add(name)
            value = function.__globals__.get(name)
            yield name, value
            if isinstance(value, FunctionType) and value.__module__ == function.__module__:
                waiting.append(value.__code__)


@pytest.mark.parametrize("module", sorted(RULES))
def test_rules_are_pure(module: str) -> None:
    for rule in RULES[module]:
        function = getattr(importlib.import_module(module), rule)
        for name, value in _uses(function):
            origin = getattr(value, "__module__", None) or getattr(value, "__name__", "")
            assert name not in IMPURE_CALLS, f"{rule} calls {name}: rules are pure"
            assert not is_in(str(origin), *_OUTSIDE), f"{rule} uses {name}: rules are pure"


def test_a_rule_that_reads_the_clock_is_found() -> None:
    retry = importlib.import_module("orchestrator.store.retry")
    assert "time" in dict(_uses(retry.set_next_state))


# What may use more than the modules below: the folder of what services share, and two modules.
WORKLOADS_IMPURE = {
    "lab": "settings, connections, certificates and logging of the lab's services",
    "cli_options": "options of the command line, with the library click",
    "command_output": "says to a person which command to type, and what a command waits for",
    "input_file": "reads files that a user names",
}
PURE_MODULES = (
    *("abc", "base64", "bisect", "collections", "contextlib", "dataclasses", "datetime"),
    *("difflib", "enum", "functools", "gzip", "hashlib", "importlib", "ipaddress", "itertools"),
    *("json", "math", "operator", "pydantic", "pydantic_core", "re", "statistics", "string"),
    *("struct", "types", "typing", "unicodedata", "workloads", "zlib"),
)
IMPURE_CALLS = {"open", "print", "input", "now", "today", "utcnow"}


def test_workloads_are_pure() -> None:
    """The protocol, the models and their lowering are computed from their arguments alone."""
    root = ROOT / "workloads"
    impure_modules = [f"workloads.{name}" for name in WORKLOADS_IMPURE]
    pure = [
        path
        for path in root.rglob("*.py")
        if path.relative_to(root).parts[0].removesuffix(".py") not in WORKLOADS_IMPURE
    ]
    fail_on(
        "only what has a reason in WORKLOADS_IMPURE may use files, clocks or networks",
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
        "client/lab_client.py",  # the way in of programs
        "workloads/command_output.py",  # how the command was called
    )
    for path in FILES:
        if "os.environ" in path.read_text() and not any(
            reader in relative(path) for reader in readers
        ):
            pytest.fail(f"{relative(path)} reads os.environ: settings are read once and passed on")


def test_packages_resolve_inside_this_repository() -> None:
    for package in PACKAGES:
        module = __import__(package)
        assert ROOT in Path(str(module.__file__)).parents


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
    "prune_daily": "part of a service",
    "publish_change": "part of the operations that change something",
    "read_readiness": "belongs to the start of a lab on this computer",
    "run_ingest": "runs a service",
    "run_scheduler": "runs a service",
    "wait_for_sweep": "polls an operation",
}


# Modules directly in app/ without an operation, each with the reason.
APP_BASE = {
    "app_errors": "every operation raises them",
    "export_formats": "the names of formats, without what writes them",
    "external_engines": "works on files, without a lab",
    "lab_connection": "the first parameter of every operation",
    "lab_secrets": "creates what a lab needs before it exists",
    "open_lab": "returns the first parameter of every operation",
    "operation": "the registry",
    "twin_estimate": "asks twins for durations, in another process",
}


def test_operations_and_their_helpers_are_apart() -> None:
    """The modules of app/ have operations; what helps them is in its packages."""
    root = ROOT / "orchestrator/app"
    with_operations = {operation.function.__module__ for operation in load_operations().values()}
    modules = {path.stem for path in root.glob("*.py")} - {"__init__"}
    names = {module.removeprefix("orchestrator.app.") for module in with_operations}
    assert modules - names <= APP_BASE.keys()


def test_every_public_function_that_takes_a_lab_is_an_operation() -> None:
    for path in (ROOT / "orchestrator/app").rglob("*.py"):
        name = relative(path).removesuffix(".py").replace("/", ".")
        module = importlib.import_module(name.removesuffix(".__init__"))
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ != module.__name__ or name.startswith("_"):
                continue
            parameters = list(inspect.signature(function).parameters.values())
            if parameters and parameters[0].annotation is LabConnection:
                assert name in OPERATIONS or name in NOT_OPERATIONS, name


def test_no_package_is_above_its_ceiling_and_every_gain_is_kept() -> None:
    problems = [size.problem for size in measured_sizes() if size.problem]
    if problems:
        pytest.fail(f"tests/{CEILINGS.name}:\n" + "\n".join(problems))


def test_a_raised_ceiling_has_a_reason() -> None:
    for package, ceiling in read_ceilings(CEILINGS.read_text()).items():
        if ceiling.was is not None:
            assert ceiling.was < ceiling.lines, package
            assert ceiling.reason not in {"", "what users get for it"}, package


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (1000, ""),
        (990, ""),
        (989, 'keep the gain: "a/b" = 989'),
        (1001, '"a/b" = { lines = 1001, was = 1000, reason = "what users get for it" }'),
    ],
)
def test_a_package_that_leaves_its_limits_is_found(lines: int, problem: str) -> None:
    ceilings = read_ceilings('"a" = 10\n"a/b" = 1000')
    outer, inner = package_sizes({"a/x.py": 10, "a/b/y.py": lines - 1, "a/b/c/z.c": 1}, ceilings)
    assert (outer.lines, outer.problem) == (10, "")
    assert inner.lines == lines
    assert inner.problem.endswith(problem)
    assert bool(inner.problem) == bool(problem)


def test_a_file_outside_of_every_package_is_found() -> None:
    with pytest.raises(KeyError, match=r"b/x\.py is in no package"):
        package_sizes({"b/x.py": 1}, read_ceilings('"a" = 10'))
