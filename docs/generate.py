"""Write the generated blocks of docs/reference from the code: `farm docs`.

A block lies between the comments `<!-- generated: NAME -->` and `<!-- end -->`; everything around
it is written by hand. A test compares the committed pages with what this module renders.
"""

import ast
import importlib
import inspect
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from docs.column_notes import COLUMN_NOTES
from docs.curves import write_curves
from docs.demo_table import demo_hook, demo_table, run_demo
from workloads.protocol.faults import FarmError, FaultKind
from workloads.protocol.reason_advice import REASON_ADVICE

ROOT = Path(__file__).resolve().parents[1]
JOINT_RULES = [f"orchestrator/analysis/{name}.py" for name in ("joint_rules", "expected_ranges")]
PAGES = ROOT / "docs" / "reference"
HELP_WIDTH = 96
STATES = "orchestrator.planning.states"
_BLOCK = re.compile(r"(<!-- generated: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(headings: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table; a vertical bar inside a cell is escaped. Nothing found is an error."""
    head, found = list(headings), [list(row) for row in rows]
    if not found or any(cell is None for row in found for cell in row):
        raise LookupError(f"a table of {', '.join(head)} has no rows, or a cell without text")
    lines = [head, ["---"] * len(head), *([str(cell) for cell in row] for row in found)]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |".replace(
            "|  |", "| |"
        )
        for line in lines
    )


def code(value: object) -> str:
    """A value as inline code; nothing for an empty one."""
    return f"`{value}`" if value not in (None, "", ()) else ""


def rendered_cli() -> str:
    """Every command with the help that it prints, for the site."""
    from orchestrator.cli import farm

    parts = []
    for path, command in walk_commands(farm, click.Context(farm, info_name="farm")):
        context = click.Context(command, info_name=" ".join(path), max_content_width=HELP_WIDTH)
        context.terminal_width = HELP_WIDTH
        parts.append(f"## {' '.join(path)}\n\n```text\n{command.get_help(context)}\n```")
    return "\n\n".join(parts)


def walk_commands(
    command: click.Command, context: click.Context, path: tuple[str, ...] = ("farm",)
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command that is not hidden, with the words that call it."""
    yield path, command
    if not isinstance(command, click.Group):
        return
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        if inner is not None and not inner.hidden:
            below = click.Context(inner, info_name=name, parent=context)
            yield from walk_commands(inner, below, (*path, name))


def render_metrics() -> str:
    """Every metric with unit, family, meaning and formula."""
    from workloads.protocol.metrics import metrics_table

    return metrics_table()


def render_studies() -> str:
    """Which study answers which measurement of the three papers."""
    from orchestrator.study.study_catalogue import TOPICS, all_studies

    rows = []
    for topic, text in TOPICS.items():
        studies = [study for study in all_studies().values() if topic in study.covers]
        claims = [c for study in studies for c in study.claims if study.topic_of(c) == topic]
        queries = [c.query for c in claims]
        metrics = {
            name.partition(".")[0]: None
            for query in queries
            for name in (query.metric, query.second_metric, "outcome" * (query.kind == "outcome"))
            if name
        }
        rows.append((topic, text, _listed(study.name for study in studies), _listed(metrics)))
    return table(("topic", "what was measured", "study", "metrics"), rows)


def render_paper_items() -> str:
    """Every item of the three papers, with what answers it and what is missing."""
    from orchestrator.study.study_catalogue import find_study

    papers = tomllib.loads((ROOT / "docs" / "paper_items.toml").read_text())
    items = [item for paper in papers.values() for item in paper]
    rows, states = [], dict.fromkeys(("answered", "partly", "open"), 0)
    for number, item in enumerate(items, 1):
        studies = [find_study(name).name for name in item.get("studies", ())]
        answers = ", ".join(filter(None, (_listed(studies), item.get("with"))))
        missing = item.get("missing", "")
        state = "open" if not answers else "partly" if missing else "answered"
        states[state] += 1
        rows.append((number, item["item"], state, answers, missing))
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    headings = ("#", "item", "state", "answered by", "missing")
    return f"{len(rows)} items: {counts}.\n\n{table(headings, rows)}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(code, names))


def render_reasons() -> str:
    """Every reason code with its consequence, its text and what to do about it."""
    from workloads.protocol.verdict import REASON_TEXTS, ReasonCode

    consequences = _reason_consequences()
    rows = [
        (
            code(reason.value),
            ", ".join(sorted(consequences[reason.name], reverse=True)),
            re.sub(r"\{(\w+)[^}]*\}", r"*\1*", REASON_TEXTS[reason]),
            REASON_ADVICE[reason.value],
        )
        for reason in ReasonCode
    ]
    return table(("code", "verdict", "text", "what to do"), rows)


def _reason_consequences() -> dict[str, set[str]]:
    """What the agent and the joint rules make of a run for each reason, read from their source."""
    found: dict[str, set[str]] = {}
    for file in sorted([*(ROOT / "agent").rglob("*.py"), *(ROOT / name for name in JOINT_RULES)]):
        for function in ast.walk(ast.parse(file.read_text())):
            if isinstance(function, ast.FunctionDef):
                _collect_consequences(function, found)
    return found


def _collect_consequences(function: ast.FunctionDef, found: dict[str, set[str]]) -> None:
    """Note calls such as Reason.void(ReasonCode.X), also through a variable of the function."""
    variables = {
        target.id: {part.attr for part in ast.walk(node.value) if isinstance(part, ast.Attribute)}
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(function):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        first, called = node.args[0], node.func
        if not isinstance(first, ast.Attribute) or ast.unparse(first.value) != "ReasonCode":
            continue
        if isinstance(called, ast.Attribute):
            names = {called.attr}
        else:
            names = variables.get(ast.unparse(called), set())
        if consequences := names & {"void", "suspect", "remark"}:
            found.setdefault(first.attr, set()).update(consequences)


def render_faults() -> str:
    """Every kind of fault with the blame that decides what follows."""
    for module in ("agent.phone.shell_link", "workloads.protocol.messages"):
        importlib.import_module(module)  # further classes with a kind of their own
    classes = {kind.kind: kind for kind in _subclasses(FarmError) if "kind" in vars(kind)}
    rows = [
        (code(kind.value), code(classes[kind].blame), inspect.getdoc(classes[kind]))
        for kind in FaultKind
    ]
    return table(("kind", "blame", "meaning"), rows)


def _subclasses(kind: type[FarmError]) -> list[type[FarmError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in _subclasses(child))]


def render_exit_codes() -> str:
    """What each exit code means."""
    from orchestrator.commands.exit_codes import MEANINGS

    return table(("code", "meaning"), MEANINGS.items())


def _bounds(field: FieldInfo) -> str:
    """The range of a number as its model declares it."""
    limits = {
        name: getattr(rule, name)
        for rule in field.metadata
        for name in ("ge", "gt", "le", "lt")
        if getattr(rule, name, None) is not None
    }
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    return ", ".join(
        f"{signs[name]} {limit:,}".removesuffix(".0") for name, limit in limits.items()
    )


def render_keys(*models: type[BaseModel], prefix: str = "") -> str:
    """Every key that models declare."""
    from orchestrator.sweepfile.key_tables import key_rows

    rows = [
        (code(row.key), row.values, row.default, row.meaning)
        for row in key_rows(*models, prefix=prefix)
    ]
    return table(("key", "values", "default", "meaning"), rows)


def render_sweep_keys(section: str) -> str:
    """The keys of one mapping of a sweep file."""
    from orchestrator.sweepfile.key_tables import SWEEP_SECTIONS

    return render_keys(*SWEEP_SECTIONS[section])


def render_options() -> str:
    """Every option of a run that has names instead of numbers."""
    from workloads.run_options import RUN_OPTIONS

    rows = [
        (code(o.name), ", ".join(map(code, o.choices)), code(o.default), code(o.backend), o.text)
        for o in RUN_OPTIONS.values()
    ]
    return table(("option", "values", "default", "backend", "meaning"), rows)


def render_manifest() -> str:
    """The keys of a manifest."""
    from orchestrator.sweepfile.manifest_reader import ManifestVersion
    from workloads.external_program import Manifest

    return render_keys(ManifestVersion, Manifest)


def render_manifest_rules() -> str:
    """The keys of the rules that read a program's output."""
    from workloads.external_program import LossRule, SizeRule, StepRule

    rules: dict[str, type[BaseModel]] = {
        "read.steps": StepRule,
        "read.loss": LossRule,
        "read.peak_rss": SizeRule,
    }
    tables = [render_keys(rule, prefix=prefix) for prefix, rule in rules.items()]
    return "\n".join([tables[0], *("\n".join(t.splitlines()[2:]) for t in tables[1:])])


def render_lab_settings() -> str:
    """Every setting of lab.toml, by section."""
    from workloads.lab.settings import LabSettings

    rows = [
        (code(f"{section}.{name}"), code(field.default), _bounds(field), field.description)
        for section, values in LabSettings.model_fields.items()
        for name, field in type(values.default).model_fields.items()
    ]
    return table(("setting", "default", "range", "meaning"), rows)


def render_exports() -> str:
    """The columns of every table that can be exported."""
    from orchestrator.export import table_schemas as schemas

    parts = []
    for name in ("figures", "ranking", "samples", "readings", "ops", "outcomes"):
        build = getattr(schemas, f"{name}_table")
        empty = build(0 if name in ("ranking", "outcomes") else schemas.RunColumns(0), [])
        rows = [(code(c.name), c.kind.__name__, COLUMN_NOTES[c.name]) for c in empty.columns]
        doc = (inspect.getdoc(build) or "").splitlines()[0]
        parts.append(f"## {name}\n\n{doc}\n\n{table(('column', 'type', 'meaning'), rows)}")
    return "\n\n".join(parts)


def render_workloads() -> str:
    """Every built-in workload with its parameters."""
    from workloads.catalogue import CATALOGUE

    rows = [
        (
            code(name),
            workload.study.name,
            workload.text,
            ", ".join(f"`{p.name}` ({p.default}; {p.min} to {p.max})" for p in workload.parameters),
        )
        for name, workload in CATALOGUE.items()
    ]
    return table(("workload", "source", "meaning", "parameters (default; range)"), rows)


def render_layers() -> str:
    """Every layer with its arguments."""
    from workloads import layers

    kinds = ((name, kind) for name, kind in sorted(vars(layers).items()) if isinstance(kind, type))
    rows = [
        (
            code(name),
            (inspect.getdoc(kind) or "").splitlines()[0],
            ", ".join(
                code(p.name if p.default is p.empty else f"{p.name}={p.default!r}")
                for p in inspect.signature(kind).parameters.values()
            ),
        )
        for name, kind in kinds
        if inspect.isclass(kind) and hasattr(kind, "tag")
    ]
    return table(("layer", "output", "arguments and defaults"), rows)


def render_mischief() -> str:
    """Every kind of mischief with its options."""
    from dataclasses import fields

    from agent.virtual.mischief.fault_registry import FAULT_TYPES

    rows = [
        (
            code(name),
            (inspect.getdoc(kind) or "").splitlines()[0],
            ", ".join(
                f"`{f.name}={f.default}`".replace("\n", "\\n") for f in fields(kind) if f.init
            ),
        )
        for name, kind in FAULT_TYPES.items()
    ]
    return table(("kind", "what it does", "options and defaults"), rows)


def render_selector_facts() -> str:
    """Every fact that a selector may compare."""
    from orchestrator.sweepfile.selector_terms import FACTS, FLAGS, TAG

    rows = [(code(name), fact.expected or "a text or a pattern") for name, fact in FACTS.items()]
    rows += [(code(name), "used without a comparison") for name in FLAGS]
    rows += [(code(TAG), "a label that was given with `farm phone tag`")]
    return table(("fact", "compared with"), rows)


def render_facts_file() -> str:
    """Every key of a facts file, by table."""
    from agent.phone import facts_file as facts

    tables: dict[str, type[BaseModel]] = {
        "": facts.FactsFile,
        "[[clock]]": facts.ClockFacts,
        "zone": facts.ZoneFacts,
        "[thermalservice]": facts.ServiceFacts,
        "current, cached": facts.ServiceRow,
        "[expected]": facts.ExpectedProbe,
    }
    rows = [
        (code(place), code(field.alias or name), "yes" * field.is_required(), field.description)
        for place, kind in tables.items()
        for name, field in kind.model_fields.items()
    ]
    return table(("in", "key", "required", "meaning"), rows)


def render_service_metrics() -> str:
    """Every name of /metrics, and which services have it."""
    from workloads.lab.service_metrics import SERVICE_METRICS

    rows = [
        (code(item.name), item.type, code(item.label), ", ".join(item.services), item.text)
        for item in SERVICE_METRICS.values()
    ]
    return table(("name", "type", "label", "services", "meaning"), rows)


def render_runner_contract() -> str:
    """The opening comment of runner.h, which is the contract."""
    source = (ROOT / "kernels/runner/runner.h").read_text()
    comment = source.partition("*/")[0].removeprefix("/*")
    lines = [re.sub(r"^ \* ?", "", line).rstrip() for line in comment.splitlines()]
    return "```text\n" + "\n".join(lines).strip() + "\n```"


def render_states(module: str, name: str) -> str:
    """Every state of an enum, with its meaning."""
    states = getattr(importlib.import_module(module), name)
    return table(("state", "meaning"), ((code(state.value), state.text) for state in states))


BLOCKS: dict[str, Callable[[], str]] = {
    "conditions": partial(render_sweep_keys, "conditions"),
    "sweep-keys": partial(render_sweep_keys, ""),
    "workload-keys": partial(render_sweep_keys, "workload"),
    "phone-keys": partial(render_sweep_keys, "phones"),
    "rule-keys": partial(render_sweep_keys, "exclude[], include[]"),
    "repeat-keys": partial(render_sweep_keys, "repeat"),
    "order-keys": partial(render_sweep_keys, "order"),
    "retry-keys": partial(render_sweep_keys, "retry"),
    "budget-keys": partial(render_sweep_keys, "budget"),
    "collect-keys": partial(render_sweep_keys, "collect"),
    "run-options": render_options,
    "manifest": render_manifest,
    "manifest-rules": render_manifest_rules,
    "exit-codes": render_exit_codes,
    "exports": render_exports,
    "facts-file": render_facts_file,
    "faults": render_faults,
    "lab-settings": render_lab_settings,
    "metrics": render_metrics,
    "paper-items": render_paper_items,
    "layers": render_layers,
    "mischief": render_mischief,
    "reasons": render_reasons,
    "runner-contract": render_runner_contract,
    "selector-facts": render_selector_facts,
    "service-metrics": render_service_metrics,
    "studies": render_studies,
    "run-states": partial(render_states, STATES, "RunState"),
    "sweep-states": partial(render_states, STATES, "SweepState"),
    "report-states": partial(render_states, STATES, "ReportStatus"),
    "health-states": partial(render_states, STATES, "Health"),
    "phone-states": partial(render_states, STATES, "PhoneAvailability"),
    "host-states": partial(render_states, "orchestrator.app.control_hosts", "HostState"),
    "control-levels": partial(render_states, "workloads.protocol.phone_facts", "ControlLevel"),
    "memory-outcomes": partial(render_states, "workloads.protocol.memory_outcome", "MemoryOutcome"),
    "stages": partial(render_states, "workloads.protocol.stage", "Stage"),
    "event-kinds": partial(render_states, "workloads.protocol.messages", "EventKind"),
    "workloads": render_workloads,
}


def rendered(text: str, blocks: Mapping[str, Callable[[], str]] = BLOCKS) -> str:
    """A page with all its generated blocks rendered again; a block without text is an error."""

    def block(match: re.Match[str]) -> str:
        if not (content := blocks[match[2]]()).strip():
            raise LookupError(f"the block {match[2]} is empty: its generator found nothing")
        return f"{match[1]}\n{content}\n\n{match[3]}"

    return _BLOCK.sub(block, text)


def main() -> None:
    """Rewrite every page of the reference, the curves, and what README shows of the demo."""
    pages, blocks = sorted(PAGES.glob("*.md")), BLOCKS
    changed = write_curves()
    if "--no-demo" not in sys.argv:
        click.echo("running the demo for the table in README.md", err=True)
        with TemporaryDirectory() as folder:
            printed = run_demo(Path(folder) / "demo")
        pages = [ROOT / "README.md", *pages]
        blocks = {"demo": lambda: demo_table(printed), "hook": lambda: demo_hook(printed), **BLOCKS}
    for page in pages:
        text = page.read_text()
        if (new := rendered(text, blocks)) != text:
            page.write_text(new)
            changed.append(page)
    for file in changed:
        click.echo(file.relative_to(ROOT))


if __name__ == "__main__":
    main()
