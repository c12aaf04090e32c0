"""The C and OpenCL sources: which layer includes which, and what clang-format does not check."""

import re
from pathlib import Path

import pytest

from workloads.lowering.memory_planner import IN_PLACE

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
LOCAL_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


@pytest.mark.parametrize(
    ("layer", "allowed"),
    [
        ("runner", ("engine", "runner")),
        ("engine", ("engine",)),
        ("engine/cpu", ("engine/cpu", "engine/*")),
        ("engine/opencl", ("engine/opencl", "engine/*")),
    ],
)
def test_a_layer_includes_only_allowed_headers(layer: str, allowed: tuple[str, ...]) -> None:
    files = sorted((KERNELS / layer).rglob("*.[ch]"))
    assert files
    violations = []
    for file in files:
        for name in LOCAL_INCLUDE.findall(file.read_text()):
            target = (file.parent / name).resolve()
            assert target.is_file(), f"{file}: {name} does not exist"
            folder = target.parent.relative_to(KERNELS).as_posix()
            if not any(is_inside(folder, place) for place in allowed):
                violations.append(f"{file.relative_to(KERNELS)} includes {name}")
    assert violations == []


def test_comments_have_the_width_of_the_code() -> None:
    files = [file for file in KERNELS.rglob("*") if file.suffix in (".c", ".h", ".cl")]
    long = [
        f"{file.relative_to(KERNELS)}:{number}"
        for file in files
        for number, line in enumerate(file.read_text().splitlines(), start=1)
        if len(line) > 100
    ]
    assert long == []


def test_texts_use_only_the_conversions_that_format_text_knows() -> None:
    """Another one, such as %016llx, would be printed as it stands."""
    call = re.compile(r"(?:format_text|fault_set)\(.*?;\n", re.DOTALL)
    known = re.compile(r"%(?:%|s|\.\d+s|d|lld|llu|llx)")
    calls = [text for file in KERNELS.rglob("*.c") for text in call.findall(file.read_text())]
    literals = [literal for text in calls for literal in re.findall(r'"((?:[^"\\]|\\.)*)"', text)]
    assert len(literals) > 100
    assert [literal for literal in literals if "%" in known.sub("", literal)] == []


def test_sections_are_marked_in_one_way() -> None:
    ruler = re.compile(r"^/\*\s*-+.*$", re.MULTILINE)
    marks = [mark for file in KERNELS.rglob("*.[ch]") for mark in ruler.findall(file.read_text())]
    assert marks
    assert [mark for mark in marks if not re.fullmatch(r"/\* ---- \S.* ---- \*/", mark)] == []


def test_the_memory_planner_knows_the_operations_that_work_in_place() -> None:
    """An output with the name of its input is that input, updated; the lowering says so itself."""
    marked: dict[str, tuple[int, int]] = {}
    for kind, signature in signatures().items():
        inputs, outputs = ([*words.split()] for words in signature.split(":")[:2])
        names = [re.split(r"\W", word)[0] for word in inputs]
        for number, output in enumerate(outputs):
            name, _, source = output.partition("=")
            if source and re.split(r"\W", name)[0] != source:
                marked[kind] = (names.index(source), number)
    assert marked == IN_PLACE


def signatures() -> dict[str, str]:
    """Return the signature of every operation in the tables of the engine."""
    found: dict[str, str] = {}
    for file in (KERNELS / "engine" / "cpu").glob("*.c"):
        source = file.read_text().replace("\\\n", "")
        for name, text in re.findall(r'#define ([A-Z]+) +((?:"[^"]*" *)+)', source):
            source = re.sub(rf"\b{name}(?=,)", text, source)
        for kind, text in re.findall(r'^    \{"(\w+)",\s+((?:"[^"]*"\s*)+),', source, re.MULTILINE):
            found[kind] = "".join(re.findall(r'"([^"]*)"', text))
    assert len(found) > 70
    return found


def is_inside(folder: str, place: str) -> bool:
    """Whether a folder is `place` or below it; `place/*` means only the folder itself."""
    if place.endswith("/*"):
        return folder == place.removesuffix("/*")
    return folder == place or folder.startswith(f"{place}/")
