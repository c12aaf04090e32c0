"""The source files of the product, for tests that read them."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("agent", "kernels", "orchestrator", "workloads")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def relative(path: Path) -> str:
    """Return the path of a file as tests name it."""
    return path.relative_to(ROOT).as_posix()
