"""The commented files that `farm workload new` start with."""

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workloads.external_program import check_file_name
from workloads.protocol.faults import InvalidRequest
from workloads.text import safe_text

if TYPE_CHECKING:
    from orchestrator.app.external_engines import EngineFiles

NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
TABLE_MARK = "    # new_models\n"  # where a line is added

MODEL = '''"""{name}: a small image classifier; change its layers to yours."""

from functools import cache

from workloads.graph import NOT_PUBLISHED, Model, Node
from workloads.layers import Conv2d, Flatten, Linear, MaxPool, ReLU, SoftmaxCrossEntropy
from workloads.training import SGD
from workloads.workload import BoundParameters

# Adam and AdamW are in workloads.training, too.
OPTIMIZER = SGD(learning_rate=0.01, momentum=0.9)


@cache
def network(side: int, classes: int) -> Model:
    """Return the network for images of a size."""
    return Model(
        "{name}",
        {{"image": (3, side, side)}},  # channels, height, width; the batches are generated
        (
            # Layers follow each other; docs/reference/workloads.md lists all of them. A node can
            # name its inputs: Node("sum", Add(), ("conv1", "conv3")) is a residual connection.
            Node("conv1", Conv2d(16, 3, padding="same")),
            Node("relu1", ReLU()),
            Node("pool1", MaxPool(2, 2)),
            Node("conv2", Conv2d(32, 3, padding="same")),
            Node("relu2", ReLU()),
            Node("pool2", MaxPool(2, 2)),
            Node("flatten", Flatten()),
            Node("fc", Linear(classes)),
            Node("loss", SoftmaxCrossEntropy()),
        ),
        NOT_PUBLISHED,
    )


def model(given: BoundParameters) -> Model:
    """Return the model for the parameters that a sweep has chosen."""
    # A parameter that is added to the line in own_models.py is here as given["its_name"].
    return network(side=32, classes=10)
'''

MANIFEST = """# The manifest of {name}: it makes your program a workload. All keys:
# docs/reference/external-manifest.md. `farm sweep validate` names every mistake with its line.

external: 1
name: {name}
text: what it does, in one line

# Files that are pushed to the phone, by SHA-256. After a change of a file, copy it into the lab
# again and put the new digest here; this command does the first and prints the second:
#   farm workload add {path}
files:
  {program}: {digest}

# Whole numbers that a sweep may choose: matrix: {{batch_size: [8, 32]}}
parameters:
  batch_size: {{default: 8, min: 1, max: 512, text: samples per step}}

# How it is started. A name in braces is the path of a file on the phone, a parameter, or what the
# protocol asks for: threads, warmup, steps, seconds, max_seconds.
# Write the options of your program here.
command: [{interpreter}"{{{program}}}", "{{batch_size}}", "{{threads}}", "{{steps}}", "{{seconds}}"]

samples_per_step: batch_size

# With `training: true` a run counts only if its loss falls; `read.loss` says where it is.
training: true

# Where its numbers are in what it prints: a regular expression with one group, or a JSON path.
read:
  steps: {{regex: 'step ms ([0-9.]+)', unit: ms}}
  loss: {{regex: 'loss ([0-9.]+)'}}
"""

PROGRAM = """#!/system/bin/sh
# A stand-in for your engine: it prints the time and the loss of every step. Replace it by the call
# of your program, or list the program itself under `files` of the manifest.
batch=$1 threads=$2 steps=$3 seconds=$4
ms=$((20 + batch / threads % 70))
last=$((seconds * 1000 / ms + 1))
[ $last -lt $steps ] && last=$steps
n=0
while [ $n -lt $last ]; do
  n=$((n + 1))
  usleep ${ms}000 2>/dev/null || sleep 0.0$ms
  echo "step ms $ms.0 loss $((9000 / (n + 10))).5"
done
"""


def check_name(name: str) -> str:
    """Return a name that can be a workload's; InvalidRequest says what is wrong with it."""
    if NAME.fullmatch(name) is None:
        shown = safe_text(name, 60)
        raise InvalidRequest(f"'{shown}' is not a name; use a-z, 0-9 and '-', e.g. my-net")
    return name


def write_model(name: str, models: Path) -> Path:
    """Write the file of a new model, and its line in the table; return the file."""
    file, table = models / f"{name.replace('-', '_')}.py", models / "own_models.py"
    lines = _read(table)
    if TABLE_MARK not in lines:
        raise InvalidRequest(f"{table} has no line '{TABLE_MARK.strip()}'; add it to the table")
    write_new(file, MODEL.format(name=name))
    line = f'    OwnModel("{name}", "what it does, in one line"),\n'
    table.write_text(lines.replace(TABLE_MARK, line + TABLE_MARK, 1))
    return file


def write_manifest(
    name: str, folder: Path, program: Path | None, python: str = "python3"
) -> list[Path]:
    """Write the manifest of an external program, and a program if none is given."""
    written = []
    if program is None:
        program = folder / f"{name}.sh"
        write_new(program, PROGRAM)
        written.append(program)
    try:
        check_file_name(program.name)
    except ValueError as error:
        raise InvalidRequest(str(error)) from error
    digest = _digest_of(program)
    text = MANIFEST.format(
        name=name,
        program=program.name,
        path=program,
        digest=digest,
        interpreter=_interpreter(program, python),
    )
    manifest = folder / f"{name}.yaml"
    write_new(manifest, text)
    return [manifest, *written]


def _interpreter(program: Path, python: str) -> str:
    """Return the first word of the command of a script; a built program is started itself."""
    with program.open("rb") as stream:
        first = stream.readline(200)
    if program.suffix == ".py" or re.match(rb"#!.*python", first):
        return f"{_python_word(python)}, "
    return "sh, " if program.suffix == ".sh" or re.match(rb"#!.*sh\b", first) else ""


def _python_word(python: str) -> str:
    path = str(Path(python).absolute()) if "/" in python else python
    return json.dumps(path.replace("{", "{{").replace("}", "}}"))


def write_engine(
    name: str, folder: Path, engine: "EngineFiles", python: str, programs: Sequence[Path]
) -> list[Path]:
    """Write the manifest of an included engine, and its Python programs."""
    if len(programs) != len(engine.needed):
        files = " and ".join(engine.needed) or "no --program"
        raise InvalidRequest(f"this engine needs {files}; pass --program once for each")
    text = re.sub(r"(?m)^name: .*$", f"name: {name}", engine.text, count=1)
    text = text.replace("command: [python3,", f"command: [{_python_word(python)},", 1)
    for file, program in zip(engine.needed, programs, strict=True):
        digest = _digest_of(program)
        text = re.sub(rf"(?m)^  {re.escape(file)}: .*$", f"  {file}: {digest}", text, count=1)
    manifest = folder / f"{name}.yaml"
    write_new(manifest, text)
    return [manifest, *(_copy_once(path, folder) for path in engine.shipped)]


def _copy_once(source: Path, folder: Path) -> Path:
    """Copy a file; the same file may be there already, for another engine."""
    target = folder / source.name
    if not target.exists() or _read_bytes(target) != _read_bytes(source):
        write_new(target, _read(source))
    return target


def write_new(file: Path, text: str) -> None:
    """Write a file that does not exist yet."""
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise InvalidRequest(f"{file} exists already; choose another name") from None
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be written: {error.strerror}") from error


def _digest_of(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}") from error


def _read(file: Path) -> str:
    return _read_bytes(file).decode()


def _read_bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}") from error
