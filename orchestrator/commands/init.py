"""`farm init`: creates a lab folder with commented settings and example sweeps."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from orchestrator.app.app_errors import InvalidState
from workloads.text import toml_value

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"  # a link, and files in the wheel


@click.command()
@click.argument(
    "folder", type=click.Path(file_okay=False, path_type=Path), default=Path("lab"), required=False
)
def init(folder: Path) -> None:
    """Create a lab FOLDER (default: ./lab) with commented settings and examples.

    Example: farm init lab
    """
    from workloads.lab_settings import SETTINGS_FILE

    file = folder / SETTINGS_FILE
    if file.exists():
        raise InvalidState(f"{file} already exists; nothing was changed")
    sweeps = folder / "sweeps"
    sweeps.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(commented_settings()) + "\n", encoding="utf-8")
    file.chmod(0o600)  # it may contain a password
    click.echo(f"{file}: all settings, commented out")
    for example in sorted(EXAMPLES.glob("*.yaml")):
        if not (sweeps / example.name).exists():
            shutil.copyfile(example, sweeps / example.name)
    click.echo(f"{sweeps}: {len(list(sweeps.glob('*.yaml')))} example sweeps")
    click.echo(f"Start the lab with: farm up --lab {folder}", err=True)
    click.echo(f"To undo, delete {folder}.", err=True)


def commented_settings(values: Mapping[str, object] | None = None) -> Iterator[str]:
    """Yield the lines of a settings file: every setting, commented out unless it has a value."""
    from workloads.lab_settings import LabSettings

    yield "# Settings of this lab, all optional. FARM_BROKER and FARM_STORE override them."
    for section, model in LabSettings.model_fields.items():
        yield ""
        yield f"[{section}]"
        settings = model.default
        for name, field in type(settings).model_fields.items():
            yield f"# {field.description}"
            value = (values or {}).get(f"{section}.{name}")
            given = toml_value(getattr(settings, name) if value is None else value)
            yield f"{'# ' * (value is None)}{name} = {given}"
