"""Builds the runner: `python -m kernels.build`, with the compiler of the PyPI package `ziglang`.

The same sources give the same bytes, on any machine and in any folder. bin/manifest.json records
the digest of every binary and of the sources that it was built from.
"""

import argparse
import hashlib
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
BIN = HERE / "bin"
MANIFEST = "manifest.json"
BYTES_MAX = 300 * 1024
ZIG = (sys.executable, "-m", "ziglang")
BIONIC_ONLY = "runner/bionic.c"

_COMPILE = (
    "-std=c11",
    "-D_GNU_SOURCE=",
    "-g0",
    "-Wall",
    "-Wextra",
    "-fno-stack-protector",
    "-fno-unwind-tables",
    "-fno-asynchronous-unwind-tables",
    "-fno-ident",
    "-fmerge-all-constants",
    "-fno-builtin-bcmp",  # Android has no bcmp
    "-fomit-frame-pointer",
    "-ffunction-sections",
    "-fdata-sections",
    "-fvisibility=hidden",
)
# Hot loops are compiled for speed, the rest for size.
_SPEED: dict[str, tuple[str, ...]] = {
    "engine/cpu/depthwise.c": ("-O3", "-fno-unroll-loops"),
    "engine/cpu/gemm.c": ("-O3", "-fno-unroll-loops"),
    "engine/cpu/microkernel.c": ("-O3",),
    "engine/cpu/optimizers.c": ("-O3", "-fno-unroll-loops"),
}
_SIZE = ("-Os",)
_SIZE_ONCE = ("-Os", "-fno-vectorize")  # code that runs once, before the first step
_LINK = ("-s", "-Wl,--gc-sections", "-Wl,--build-id=none")

# All symbols that the bionic build may use of Android: anything else does not link. Each exists
# since Android 5 or before, and none takes a struct whose layout differs between C libraries.
_BIONIC: dict[str, tuple[str, ...]] = {
    "libc.so": (
        *("__errno", "__libc_init", "_exit", "abort", "access", "calloc", "clock_gettime"),
        *("clock_nanosleep", "close", "flock", "fork", "free", "fstat", "fsync", "ftruncate"),
        *("getauxval", "getenv", "getpid", "kill", "lseek", "madvise", "malloc", "memchr"),
        *("memcmp", "memcpy"),
        *("memmove", "memset", "mmap", "munmap", "nanosleep", "open", "pipe", "poll"),
        *("posix_memalign", "pread", "pthread_create", "pthread_detach", "pthread_join"),
        *("pthread_kill", "pwrite", "qsort", "read", "realloc", "rename", "sched_yield", "signal"),
        *("snprintf", "strcat", "strchr", "strcmp", "strcpy", "strcspn", "strerror", "strlen"),
        *("strncmp", "strrchr", "strspn", "strstr", "strtod", "strtol", "strtoll", "strtoull"),
        *("syscall", "unlink", "vsnprintf", "waitpid", "write"),
    ),
    "libm.so": (
        *("ceil", "cos", "cosf", "erf", "erff", "exp", "expf", "fabs", "floor", "floorf"),
        *("fmaxf", "fminf", "log", "log1pf", "logf", "pow", "powf", "sin", "sinf", "sqrt"),
        *("sqrtf", "tanh", "tanhf"),
    ),
    "libdl.so": ("dlopen", "dlsym"),
}


@dataclass(frozen=True)
class BuildTarget:
    """One binary: its ABI and its flags."""

    file: str
    abi: str
    zig: str
    flags: tuple[str, ...]
    engine: tuple[str, ...] = ()  # additional flags for engine/
    link: tuple[str, ...] = ()
    bionic: bool = False


TARGETS = (
    BuildTarget(
        file="runner-arm64-bionic",
        abi="arm64-v8a",
        zig="aarch64-linux-musl",
        # Android reserves x18, and its libc has no helper functions for atomics.
        flags=("-fPIE", "-ffixed-x18", "-mno-outline-atomics"),
        bionic=True,
    ),
    BuildTarget(
        file="runner-arm64-musl",
        abi="arm64-v8a",
        zig="aarch64-linux-musl",
        flags=("-fno-pie", "-mno-outline-atomics", "-DRUNNER_STATIC"),
        link=("-static", "-no-pie", "-Wl,-z,max-page-size=16384"),
    ),
    BuildTarget(
        file="runner-x86_64",
        abi="x86_64",
        zig="x86_64-linux-gnu.2.28",
        flags=("-fno-pie", "-mcpu=x86_64"),
        # Only the engine uses AVX2; the runner checks for it before it calls the engine.
        engine=("-mcpu=x86_64_v3",),
        link=("-no-pie", "-lpthread", "-lm", "-ldl", "-Wl,--hash-style=gnu"),
    ),
)
HOST = TARGETS[-1]


def sources(root: Path = HERE) -> tuple[Path, ...]:
    """List everything that is compiled or included, in a fixed order."""
    files = [path for folder in ("engine", "runner") for path in (root / folder).rglob("*.[ch]")]
    return tuple(sorted((path.relative_to(root) for path in files), key=Path.as_posix))


def digest_of_sources(target: BuildTarget, zig_version: str, root: Path = HERE) -> str:
    """Hash what a binary is built from: sources, flags and compiler version."""
    settings: list[object] = [target.zig, _COMPILE, _SPEED, _SIZE, _SIZE_ONCE, _LINK, zig_version]
    settings += [target.flags, target.engine, target.link]
    if target.bionic:
        settings.append(_BIONIC)
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for path in sources(root):
        content = (root / path).read_bytes()
        digest.update(f"{path.as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def zig_version() -> str:
    """Return the version of the installed compiler."""
    return _zig(["version"], HERE).strip()


def build(target: BuildTarget, into: Path, root: Path = HERE, *, symbols: bool = False) -> Path:
    """Build one binary and return its path; the names of functions stay in it if asked."""
    into.mkdir(parents=True, exist_ok=True)
    output = into.resolve() / target.file
    with tempfile.TemporaryDirectory(prefix="farm-build-") as scratch_name:
        scratch = Path(scratch_name)
        with ThreadPoolExecutor(2) as workers:
            objects = list(
                workers.map(
                    lambda path: _compile(target, path, scratch, root),
                    [path for path in sources(root) if _is_compiled(target, path)],
                )
            )
        if target.bionic:
            _link_bionic(objects, output, scratch, symbols)
        else:
            words = ["cc", "-target", target.zig, *target.flags, *_LINK[symbols:], *objects]
            _zig([*words, *target.link, "-o", str(output)], scratch)
    output.chmod(0o755)
    return output


def manifest_of(folder: Path, version: str, root: Path = HERE) -> str:
    """Describe the binaries of a folder as JSON."""
    entries = []
    for target in TARGETS:
        content = (folder / target.file).read_bytes()
        entries.append(
            {
                "file": target.file,
                "abi": target.abi,
                "sha256": hashlib.sha256(content).hexdigest(),
                "bytes": len(content),
                "sources_sha256": digest_of_sources(target, version, root),
            }
        )
    return json.dumps({"zig": version, "binaries": entries}, indent=2) + "\n"


def main(words: Sequence[str] | None = None) -> int:
    """Build the requested binaries and print their sizes."""
    parser = argparse.ArgumentParser(description="Build the runner from its sources.")
    parser.add_argument("--host", action="store_true", help="Build only for this computer.")
    parser.add_argument("--into", type=Path, default=BIN, help="Write the binaries to this folder.")
    parser.add_argument(
        "--sources", type=Path, default=HERE, help="Read sources from this copy of kernels/."
    )
    options = parser.parse_args(words)
    root = options.sources.resolve()
    for target in (HOST,) if options.host else TARGETS:
        output = build(target, options.into, root)
        size = output.stat().st_size
        sys.stdout.write(f"{output}  {size} bytes\n")
        if size >= BYTES_MAX and not options.host:
            sys.stderr.write(f"{target.file} exceeds the limit of {BYTES_MAX} bytes\n")
            return 1
    if not options.host:
        (options.into / MANIFEST).write_text(manifest_of(options.into, zig_version(), root))
    return 0


def _is_compiled(target: BuildTarget, path: Path) -> bool:
    return path.suffix == ".c" and (target.bionic or path.as_posix() != BIONIC_ONLY)


def _compile(target: BuildTarget, path: Path, scratch: Path, root: Path) -> str:
    output = scratch / (path.as_posix().replace("/", "-") + ".o")
    flags = list(target.engine) if path.parts[0] == "engine" else []
    flags += _SPEED.get(path.as_posix(), _SIZE if "cpu" in path.parts else _SIZE_ONCE)
    # Compiled from within the sources, so that no path of this machine gets into the binary.
    words = ["cc", "-target", target.zig, *_COMPILE, *target.flags, *flags]
    _zig([*words, "-c", path.as_posix(), "-o", str(output)], root)
    return str(output)


def _link_bionic(objects: list[str], output: Path, scratch: Path, named: bool) -> None:
    """Link against stub libraries that only define the permitted symbols."""
    stubs = [_stub(name, symbols, scratch) for name, symbols in _BIONIC.items()]
    words = ["ld.lld", "-pie", "--no-undefined", "--gc-sections", "--build-id=none"]
    words += [] if named else ["-s"]
    words += ["--dynamic-linker=/system/bin/linker64", "--hash-style=both", "-z", "now"]
    words += ["-z", "relro", "-z", "noexecstack", "-z", "max-page-size=16384"]
    words += ["-z", "common-page-size=16384"]
    _zig([*words, *objects, *stubs, "-o", str(output)], scratch)


def _stub(name: str, symbols: Sequence[str], scratch: Path) -> str:
    listing = scratch / f"{name}.s"
    lines = [f".globl {symbol}\n.type {symbol},%function\n{symbol}:\n" for symbol in symbols]
    listing.write_text(".text\n" + "".join(lines) + "ret\n")
    words = ["cc", "-target", "aarch64-linux-musl", "-c", str(listing)]
    _zig([*words, "-o", f"{listing}.o"], scratch)
    library = scratch / name
    _zig(["ld.lld", "-shared", "-soname", name, f"{listing}.o", "-o", str(library)], scratch)
    return str(library)


def _zig(words: Sequence[str], folder: Path) -> str:
    done = subprocess.run([*ZIG, *words], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        if importlib.util.find_spec(ZIG[-1]) is None:
            raise SystemExit(
                "the compiler is missing; install it with: "
                f"{sys.executable} -m pip install --constraint constraints.txt {ZIG[-1]}"
            )
        raise SystemExit(f"zig {words[0]} failed: {done.stderr.strip() or 'no error output'}")
    sys.stderr.write(done.stderr)  # warnings
    return done.stdout


if __name__ == "__main__":
    raise SystemExit(main())
