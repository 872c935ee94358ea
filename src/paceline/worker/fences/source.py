"""Judges a technique by its source, before it is imported: what it may import, and which names it may not use.

Whoever looks for a way round by computed names meets the other fences (``guard.py``): this one says early, and in
words, what a technique is not for.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

ALLOWED_IMPORTS = frozenset(
    {
        "__future__",
        "abc",
        "bisect",
        "collections",
        "contextlib",
        "dataclasses",
        "enum",
        "flash_attn",
        "flashinfer",
        "functools",
        "hashlib",
        "heapq",
        "itertools",
        "liger_kernel",
        "math",
        "numpy",
        "operator",
        "paceline",
        "random",
        "scipy",
        "statistics",
        "struct",
        "time",
        "torch",
        "triton",
        "typing",
    }
)
FORBIDDEN_PREFIXES = (
    "torch.distributed",
    "torch.multiprocessing",
    "torch.nn.parallel",
    "torch._C",
    "torch.utils.cpp_extension",
    "torch.library.Library",
    "torch.save",
    "torch.jit.save",
    "torch.profiler",
    "torch.autograd.profiler",
    "torch.autograd._enable_profiler",
    "torch.autograd._disable_profiler",
)
OPTIONAL_LIBRARIES = (
    *("flash_attn", "flashinfer"),
    *("liger_kernel.ops.fused_add_rms_norm", "liger_kernel.transformers.functional"),
    *("scipy.optimize", "scipy.sparse"),
)
"""What a technique may import where it is installed; imported before the fences, which their set-up would breach."""
_OPTIONAL_PACKAGES = frozenset(library.split(".")[0] for library in OPTIONAL_LIBRARIES)
WHOLE_PACKAGES = frozenset({"paceline", "paceline.families", "paceline.baselines"})
ALLOWED_OF_PACELINE = ("paceline.technique", "paceline.families", "paceline.baselines")
FORBIDDEN_NAMES = frozenset(
    {"__import__", "eval", "exec", "compile", "globals", "breakpoint", "open", "input"}
)
FORBIDDEN_ATTRIBUTES = frozenset(
    {
        *(
            "distributed",
            "distributed_c10d",
            "multiprocessing",
            "threading",
            "_thread",
            "ctypeslib",
            "memmap",
        ),
        *("importlib", "os", "_os", "sys", "_sys", "socket", "subprocess"),
        *("__globals__", "__builtins__", "__subclasses__", "__code__", "__closure__"),
        *("tb_frame", "f_back", "f_locals", "f_globals", "gi_frame", "cr_frame", "ag_frame"),
        *("from_file", "share_memory_", "_share_filename_cpu_", "_share_fd_cpu_"),
        *("_new_shared_filename_cpu", "_new_shared_fd_cpu"),
        *("counters", "_transport", "_pending", "_faults", "_muted", "_trace", "muted", "drop_pending"),
        *("take_split", "begin_call", "arm_faults", "copy_sent", "take_copies", "_copies"),
        *("splitting", "_split"),
    }
)
"""Attributes that lead out of a technique's own objects: to the interpreter, to callers' frames, to memory that ranks
share, or to the parts of the communicator that count."""


COMPUTING = frozenset({"numpy", "scipy", "torch", "triton"})
"""Packages that every technique may import; what they do when they are first imported is none of its doing."""


def optional_libraries(path: Path) -> list[str]:
    """Return which of the optional libraries a technique's source imports."""
    tree = ast.parse(path.read_bytes(), filename=str(path))
    named = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    named |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return [library for library in OPTIONAL_LIBRARIES if library in named]


def computing_modules(path: Path) -> list[str]:
    """Return what a technique's source names of libraries that compute, and of what techniques build on.

    The latter may import the former. Some names are those of no module: what is taken from one.
    """
    tree = ast.parse(path.read_bytes(), filename=str(path))
    named: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            named |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
    return sorted(
        name for name in named if name.split(".")[0] in COMPUTING or name.startswith("paceline.families.")
    )


def source_problems(path: Path) -> list[str]:
    """List what a technique's source imports or calls outside the contract, without running it."""
    tree = ast.parse(path.read_bytes(), filename=str(path))
    problems: list[str] = []
    aliases = _aliases(tree)
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            # without a name of its own, an import binds the first package
            names += [name.split(".")[0] for name, own in ((a.name, a.asname) for a in node.names) if not own]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            dotted = _dotted(node, aliases) or f"….{node.attr}"
            own = isinstance(node.value, ast.Name) and node.value.id == "self"
            if _forbidden_module(dotted) or (node.attr in FORBIDDEN_ATTRIBUTES and not own):
                problems.append(f"line {node.lineno}: uses {dotted}")
        elif isinstance(node, ast.Name) and node.id in FORBIDDEN_NAMES:
            problems.append(f"line {node.lineno}: uses {node.id}")
        for name in names:
            assert isinstance(node, ast.stmt)
            if name.split(".")[0] not in ALLOWED_IMPORTS or _forbidden(name):
                whole = " (a whole package; import from its modules)" if _is_package(name) else ""
                problems.append(f"line {node.lineno}: imports {name}{whole}")
    return sorted(set(problems))


def _forbidden(name: str) -> bool:
    return name.rpartition(".")[2] in FORBIDDEN_ATTRIBUTES or _forbidden_module(name)


def _forbidden_module(name: str) -> bool:
    parts = name.split(".")
    if _is_package(name):
        return True  # every module in it can be had from it, by computed names
    if parts[0] in _OPTIONAL_PACKAGES:
        return not any(name == library or name.startswith(f"{library}.") for library in OPTIONAL_LIBRARIES)
    if parts[0] == "paceline":
        return ".".join(parts[:2]) not in ALLOWED_OF_PACELINE or _of_the_harness(parts)
    return any(name == p or name.startswith(p + ".") for p in FORBIDDEN_PREFIXES)


def _of_the_harness(parts: list[str]) -> bool:
    """Tell whether a module of a family is the harness's own: all but its ``api``."""
    return parts[1] == "families" and parts[3] != "api"


def _is_package(name: str) -> bool:
    parts = name.split(".")
    if parts[:2] == ["paceline", "families"]:
        return len(parts) <= 3 or (len(parts) == 4 and parts[3] == "api")
    return name in WHOLE_PACKAGES


def _aliases(tree: ast.AST) -> dict[str, str]:
    """Return what the names stand for that imports bind."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _dotted(node: ast.expr, aliases: Mapping[str, str]) -> str | None:
    parts: list[str] = []
    current: ast.expr = node
    while isinstance(current, ast.Attribute):
        parts.append(current.attr)
        current = current.value
    if not isinstance(current, ast.Name):
        return None
    return ".".join([aliases.get(current.id, current.id), *reversed(parts)])
