"""The words of the code: nothing is decided by sentences, and no name occurs twice."""

import ast
import functools
import re

from tests.source_files import FILES, ROOT, relative

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


# Module names that occur more than once, each with the reason.
REPEATED_MODULES = {
    "__init__": "Python's name for a package",
    "__main__": "Python's name for a package that can be run",
    "cli": "the command line of a package that can be run by itself",
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
