"""Kernels in other projects' layouts as techniques of a suite: KernelBench's and flashinfer-bench's.

A file keeps its text and its line numbers; a class that the kernels family can call is written behind its end. Files
are read, never imported: what is missing in them is found in their syntax tree.

Both layouts in one module: they share how files are read, refused, labelled and written, and differ in how an entry is
found.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from paceline.base.errors import UserError, UserErrors
from paceline.base.techniques.technique import valid_name
from paceline.records.store.storage import storage_errors
from paceline.spec.plans.plan import digest

FAMILY = "kernels"
OPERATION = "custom"
LAUNCHES = "5..40"
LONGEST_LABEL = 32
LARGEST_FILE_BYTES = 4 << 20
TORCH_NAMES = {
    "float32": "torch.float32",
    "float16": "torch.float16",
    "bfloat16": "torch.bfloat16",
    "float64": "torch.float64",
    "int64": "torch.int64",
}
"""Element types of flashinfer-bench that can be drawn or handed on here."""
REFERENCE_EXPECTED = "class Model, and functions get_inputs and get_init_inputs (KernelBench)"
SOLUTION_EXPECTED = "class ModelNew (KernelBench)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A technique that stands for a file of others."""

    label: str
    name: str
    module: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A reference, its candidates, and how many sets of inputs there are."""

    reference: Written
    candidates: Sequence[Written]
    num_workloads: int = 1


def read_candidates(reference: Path, solutions: Sequence[Path], workloads: Path | None) -> Compared:
    """Read files in either layout.

    Args:
        reference: A ``.py`` of KernelBench, or a definition of flashinfer-bench as ``.json``.
        solutions: A ``.py`` each; with a definition also a ``.json``.
        workloads: Lines of JSON, for a definition whose axes vary.

    Raises:
        UserError: A file cannot be read, or is not in its layout.
    """
    definition: Mapping[str, Any] | None = None
    if reference.suffix == ".json":
        definition = _json(reference)
        source, count = _of_definition(definition, reference, workloads)
    else:
        if workloads is not None:
            raise UserError(
                "a reference of KernelBench has its own inputs",
                where=f"--workloads={workloads}",
                fix="leave it out, or give a definition of flashinfer-bench as REFERENCE",
            )
        source, count = _kernelbench_reference(reference), 1
    found, errors = [], []
    for path in solutions:
        try:
            found.append(
                _kernelbench_solution(path) if definition is None else _flashinfer_solution(path, definition)
            )
        except UserError as error:
            errors.append(error)
    if errors:
        raise UserErrors(errors) if len(errors) > 1 else errors[0]
    labels: list[str] = ["reference"]
    written = []
    for path, text, tail, fills in found:
        labels.append(_label(path, labels))
        written.append(_written(labels[-1], text, tail, fills=fills))
    return Compared(
        reference=_written("reference", source, "Model", fills=False),
        candidates=written,
        num_workloads=count,
    )


def suite_of(
    compared: Compared, *, dtype: str, threads: int, margin: float | None, timeout: str
) -> dict[str, Any]:
    """Return the suite that compares candidates with their reference."""
    names = ", ".join(c.label for c in compared.candidates)
    workload: dict[str, Any] = {"op": OPERATION, "reference": compared.reference.module, "dtype": dtype}
    if threads != 1:
        workload["threads"] = threads
    suite: dict[str, Any] = {
        "version": 1,
        "family": FAMILY,
        "description": f"Are they right, and quicker than their reference? {names}"[:200],
        "workload": workload,
        "baseline": compared.reference.label,
        "techniques": [
            {"technique": w.name, "as": w.label} for w in (compared.reference, *compared.candidates)
        ],
        **(
            {"matrix": {"workload": list(range(compared.num_workloads))}}
            if compared.num_workloads > 1
            else {}
        ),
        "protocol": {
            "until": "decided",
            "launches": LAUNCHES,
            "max_seconds": 0.4,
            "warmup_seconds": 0.2,
            "timeout": timeout,
        },
        "metrics": {"latency": {} if margin is None else {"margin": margin}},
    }
    return {"suite": f"{FAMILY}/custom-{digest(suite, 8)}", **suite}


def write_all(store: Path, suite: Mapping[str, Any], compared: Compared) -> tuple[Path, list[Path]]:
    """Write a suite and its techniques into a store, where ``PACELINE_CONTENT`` finds them; return the files.

    Raises:
        UserError: The store cannot be written.
    """
    path = store / "suites" / f"{suite['suite']}.yaml"
    folder = store / "baselines" / FAMILY
    files = []
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(
            yaml.safe_dump(dict(suite), sort_keys=False, allow_unicode=True, width=110), encoding="utf-8"
        )
        for written in (compared.reference, *compared.candidates):
            files.append(folder / f"{written.module}.py")
            files[-1].write_text(written.text, encoding="utf-8")
    return path, files


# --- KernelBench


def _kernelbench_reference(path: Path) -> str:
    text, tree = _source(path)
    _require(path, tree, ("Model", "get_inputs", "get_init_inputs"), REFERENCE_EXPECTED)
    return text


def _kernelbench_solution(path: Path) -> tuple[Path, str, str, bool]:
    if path.suffix == ".json":
        raise UserError(
            "a solution of flashinfer-bench needs a definition",
            where=str(path),
            fix="give the definition's .json as REFERENCE",
        )
    text, tree = _source(path)
    _require(path, tree, ("ModelNew",), SOLUTION_EXPECTED)
    return path, text, "ModelNew", False


# --- flashinfer-bench


def _of_definition(definition: Mapping[str, Any], path: Path, workloads: Path | None) -> tuple[str, int]:
    """Return a definition as a reference in KernelBench's layout, and how many workloads it has."""
    for key in ("axes", "inputs", "outputs", "reference"):
        if not isinstance(definition.get(key), str if key == "reference" else dict):
            raise UserError(
                f"the definition has no '{key}'",
                where=f"{path}:{key}",
                expected="axes, inputs, outputs and reference (flashinfer-bench)",
            )
    source = str(definition["reference"])
    _require(path, _tree(source, path), ("run",), "a function run in 'reference' (flashinfer-bench)")
    lines = _workload_lines(workloads) if workloads is not None else [(f"{path}", {})]
    made = [_inputs(definition, line, where) for where, line in lines]
    functions = "".join(
        f"\n\ndef _workload_{number}():\n    return [{', '.join(values)}]\n"
        for number, values in enumerate(made)
    )
    listed = ", ".join(f"_workload_{number}" for number in range(len(made)))
    return (
        f"{source.rstrip()}\n\n\nimport torch\n\nModel = run\n{functions}\n\nPACELINE_WORKLOADS = [{listed}]\n",
        len(made),
    )


def _workload_lines(path: Path) -> list[tuple[str, Mapping[str, Any]]]:
    found: list[tuple[str, Mapping[str, Any]]] = []
    for number, line in enumerate(_text(path).splitlines(), 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            data = json.loads(line)
        except ValueError as error:
            raise UserError(f"not a line of JSON: {error}", where=where) from None
        inner = data.get("workload", data) if isinstance(data, dict) else None
        if not isinstance(inner, dict) or not isinstance(inner.get("axes"), dict):
            raise UserError(
                "the line is no workload", where=where, expected='{"workload": {"axes": {…}, "inputs": {…}}}'
            )
        found.append((where, inner))
    if not found:
        raise UserError("the file holds no workload", where=str(path))
    return found


def _inputs(definition: Mapping[str, Any], workload: Mapping[str, Any], where: str) -> list[str]:
    """Return the expressions of a workload's inputs, in the definition's order."""
    sizes = {n: a["value"] for n, a in definition["axes"].items() if a.get("type") == "const"}
    sizes |= workload.get("axes", {})
    found = []
    for name, spec in definition["inputs"].items():
        given = workload.get("inputs", {}).get(name, {"type": "random"})
        if given.get("type") == "scalar" or "value" in given:
            found.append(repr(_number(given.get("value"), f"{where}:inputs.{name}")))
            continue
        if given.get("type") != "random" or spec.get("shape") is None:
            raise UserError(
                f"the input '{name}' is given as '{given.get('type')}'",
                where=f"{where}:inputs.{name}",
                expected="random, or a scalar with its value; files of tensors are not read",
            )
        if not str(spec.get("dtype")).startswith(("float", "bfloat")) or spec["dtype"] not in TORCH_NAMES:
            raise UserError(
                f"random numbers of '{spec.get('dtype')}' mean nothing to a kernel, or cannot be drawn here",
                where=f"{where}:inputs.{name}",
                expected="float32, float16, bfloat16 or float64",
            )
        shape = [axis if isinstance(axis, int) else sizes.get(axis) for axis in spec["shape"]]
        if not all(isinstance(size, int) and size > 0 for size in shape):
            lost = [axis for axis in spec["shape"] if not isinstance(axis, int) and axis not in sizes]
            raise UserError(
                f"the axis {', '.join(map(str, lost))} has no size",
                where=f"{where}:inputs.{name}",
                fix="--workloads=FILE.jsonl gives sizes",
            )
        found.append(f"torch.randn({tuple(shape)!r}).to({TORCH_NAMES[spec['dtype']]})")
    return found


def _number(value: Any, where: str) -> Any:
    if value is None or not isinstance(value, bool | int | float):
        raise UserError(f"{value!r} is no number", where=where)
    return value


def _flashinfer_solution(path: Path, definition: Mapping[str, Any]) -> tuple[Path, str, str, bool]:
    if path.suffix != ".json":
        text, tree = _source(path)
        _require(path, tree, ("run",), "a function run, as the definition's (flashinfer-bench)")
        return path, text, "run", _takes_outputs(tree, "run", definition)
    solution = _json(path)
    if solution.get("definition") != definition.get("name"):
        raise UserError(
            f"the solution is of '{solution.get('definition')}', the definition '{definition.get('name')}'",
            where=f"{path}:definition",
        )
    spec, sources = solution.get("spec"), solution.get("sources")
    if not isinstance(spec, dict) or not isinstance(sources, list) or not sources:
        raise UserError(
            "the file is no solution", where=str(path), expected="spec and sources (flashinfer-bench)"
        )
    if spec.get("language") not in ("python", "triton"):
        raise UserError(
            f"solutions in '{spec.get('language')}' are not built here",
            where=f"{path}:spec.language",
            expected="python or triton",
        )
    file, _, function = str(spec.get("entry_point")).partition("::")
    main = next((s.get("content") for s in sources if isinstance(s, dict) and s.get("path") == file), None)
    if not isinstance(main, str) or not function.isidentifier() or len(sources) > 1:
        raise UserError(
            "the entry point is not in the one source file",
            where=f"{path}:spec.entry_point",
            expected="FILE.py::FUNCTION, with that file as the only source",
        )
    tree = _tree(main, path)
    _require(path, tree, (function,), f"a function {function} in {file}")
    fills = spec.get("destination_passing_style")
    if fills is None:  # older solutions do not say: those that take the outputs too fill them
        fills = _takes_outputs(tree, function, definition)
    return path, main, function, bool(fills)


def _takes_outputs(tree: ast.Module, name: str, definition: Mapping[str, Any]) -> bool:
    """Tell whether a function has arguments for the outputs behind those for the inputs."""
    count = len(definition["inputs"]) + len(definition["outputs"])
    return any(
        isinstance(node, ast.FunctionDef)
        and node.name == name
        and len(node.args.posonlyargs) + len(node.args.args) == count
        for node in tree.body
    )


# --- files


def _written(label: str, source: str, entry: str, *, fills: bool) -> Written:
    key = digest({"label": label, "source": source, "entry": entry, "fills": fills}, 8)
    name = f"{label}-{key}"
    compiles = (
        '    properties={"compiles": True},\n' if "torch.compile" in source or "triton" in source else ""
    )
    whole = (
        f"{source.rstrip()}\n\n\n"
        "from paceline import technique\n"
        "from paceline.families.kernels.api.custom import ModuleKernel\n\n\n"
        "@technique(\n"
        f'    name="{name}",\n    family="{FAMILY}",\n    implements=("{OPERATION}",),\n'
        f'    summary="{label}, a kernel of others",\n{compiles}'
        ")\n"
        "class PacelineTechnique(ModuleKernel):\n"
        '    """What stands above, as the harness calls it."""\n\n'
        f"    model = {entry} if isinstance({entry}, type) else staticmethod({entry})\n"
        f"    fills = {fills}\n"
    )
    return Written(label=label, name=name, module=name.replace("-", "_"), text=whole)


def _label(path: Path, taken: Sequence[str]) -> str:
    words = re.findall(r"[a-z0-9]+", path.stem.lower())
    label = "-".join(words)[:LONGEST_LABEL].strip("-") or "solution"
    label = label if valid_name(label) else "solution"
    unique, number = label, 2
    while unique in taken:
        unique, number = f"{label}-{number}", number + 1
    return unique


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise UserError(
                "the file is larger than a source is",
                where=str(path),
                expected=f"at most {LARGEST_FILE_BYTES} bytes",
            )
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read the file: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError:
        raise UserError("the file is not UTF-8", where=str(path), expected="a text file") from None


def _json(path: Path) -> Mapping[str, Any]:
    try:
        data = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise UserError(f"not JSON: {error}", where=str(path)) from None
    if not isinstance(data, dict):
        raise UserError("not an object of JSON", where=str(path))
    return data


def _source(path: Path) -> tuple[str, ast.Module]:
    text = _text(path)
    return text, _tree(text, path)


def _tree(text: str, path: Path) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        raise UserError(f"not valid Python: {error}", where=f"{path}:{line}" if line else str(path)) from None


def _require(path: Path, tree: ast.Module, names: Sequence[str], expected: str) -> None:
    """Look for names at the top level of a file.

    Raises:
        UserError: One is missing.
    """
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
    lost = [name for name in names if name not in found]
    if lost:
        raise UserError(f"the file has no {', no '.join(lost)}", where=str(path), expected=expected)
