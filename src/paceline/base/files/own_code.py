"""Files of a user's own that points of a suite name, as ``MODULE:NAME``: found and read here, and never imported.

``net.py:make`` is the file beside the suite, ``nets.small:make`` a module beside the suite or an installed one. What a
file beside the suite imports from beside itself goes along, so that the files can be copied to where ranks run.
Installed modules are imported there by their names; their file alone is looked at, for its digest.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from paceline.base.counting import number_of
from paceline.base.errors import UserError, expected_one_of

REFERENCE = re.compile(r"(?P<module>[^:]*\.py|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):(?P<name>[A-Za-z_]\w*)")
MOST_FILES, MOST_BYTES = 200, 4 << 20
DIGITS = 12
"""Of the digest that names the files."""
FORM = "FILE.py:NAME beside the suite, or MODULE:NAME of a module beside it or installed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one named object is found."""

    module: str
    """Below its root, or installed: as ``import`` names it."""
    name: str
    root: str | None
    """Folder of the copied files in which the module lies; None where it is installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCode:
    """What the parameters of a point, or of several with the same files, name."""

    places: Mapping[str, Place]
    """By ``MODULE:NAME``."""
    files: Mapping[str, Path]
    """By their place among the copied files; an installed module's under ``installed/``, which is not copied."""

    @property
    def digest(self) -> str:
        """First digits of a digest over names and contents of all files."""
        found = hashlib.sha256()
        for name, path in sorted(self.files.items()):
            found.update(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
        return found.hexdigest()[:DIGITS]

    def index(self, folder: Path) -> str:
        """Return where each named object is, as JSON, for who imports it.

        Args:
            folder: Of the suite, which factories are told.
        """
        places = {
            text: {"module": p.module, "name": p.name, "root": p.root} for text, p in self.places.items()
        }
        return json.dumps({"folder": str(folder), "places": places}, indent=1, sort_keys=True)


INSTALLED = "installed/"
OWN_CODE, INDEX = "own", "index.json"
"""Folder of a job for the user's own code, and the file in it that says where what is."""


def is_reference(text: str) -> bool:
    """Tell whether a text has the form ``MODULE:NAME``."""
    return REFERENCE.fullmatch(text) is not None


def find_code(named: Mapping[str, str], folder: Path) -> OwnCode:
    """Find what parameters name, and all files that belong to it.

    Args:
        named: ``MODULE:NAME`` by parameter.
        folder: Where files lie that are named by a relative path, and modules that are not installed.

    Raises:
        UserError: There is no such file or module, it is no Python, or does not have the name; ``where`` is the
            parameter.
    """
    roots: list[Path] = []
    places: dict[str, Place] = {}
    files: dict[str, Path] = {}
    for key, text in named.items():
        found = REFERENCE.fullmatch(text)
        if found is None:
            raise UserError(f"'{text}' names no object of a module", where=key, expected=FORM)
        module, name = found["module"], found["name"]
        path, root = _file_of(module, folder, key)
        _must_have(path, name, key)
        if root is None:
            files[f"{INSTALLED}{module}"] = path
            places[text] = Place(module=module, name=name, root=None)
            continue
        if root not in roots:
            roots.append(root)
        at = str(roots.index(root))
        dotted = path.stem if module.endswith(".py") else module
        places[text] = Place(module=dotted, name=name, root=at)
        for used in _with_neighbours(path, root, key):
            files[f"{at}/{used.relative_to(root).as_posix()}"] = used
    return OwnCode(places=places, files=files)


def _file_of(module: str, folder: Path, key: str) -> tuple[Path, Path | None]:
    """Return a module's file, and the folder below which it is imported; None for an installed one."""
    if module.endswith(".py"):
        path = (folder / module).resolve()
        if not path.is_file():
            here = sorted(p.name for p in folder.glob("*.py"))
            raise UserError(
                f"there is no file {path}",
                where=key,
                expected=expected_one_of(module, here) if here else FORM,
            )
        if not path.stem.isidentifier():
            raise UserError(
                f"'{path.name}' cannot be imported",
                where=key,
                expected="a name of letters, digits and '_'",
                fix=f"mv {path.name} {re.sub(r'[^A-Za-z0-9_]', '_', path.stem)}.py",
            )
        return path, path.parent
    beside = folder.joinpath(*module.split("."))
    for path in (beside.with_name(f"{beside.name}.py"), beside / "__init__.py"):
        if path.is_file():
            return path.resolve(), folder.resolve()
    origin = _installed(module)
    if origin is None:
        raise UserError(
            f"there is no module '{module}', neither in {folder.resolve()} nor installed",
            where=key,
            expected=FORM,
            fix=f"{module.rpartition('.')[2]}.py:NAME, if that is the file's name beside the suite",
        )
    return origin, None


def _installed(module: str) -> Path | None:
    """Find an installed module's file without importing what is above it."""
    at: Sequence[str] | None = None
    origin: str | None = None
    parts = module.split(".")
    for number in range(len(parts)):
        found = PathFinder.find_spec(".".join(parts[: number + 1]), at)
        if found is None:
            return None
        at, origin = found.submodule_search_locations, found.origin
        if number + 1 < len(parts) and at is None:
            return None
    return Path(origin) if origin is not None and origin.endswith(".py") else None


def _parsed(path: Path, key: str) -> ast.Module:
    try:
        return ast.parse(path.read_bytes(), filename=str(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise UserError(
            f"{path.name}{f':{line}' if line else ''} is no Python: {error}", where=key
        ) from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}", where=key) from error


def _must_have(path: Path, name: str, key: str) -> None:
    """Look for a name at the top level of a file; what a star import brings, nobody can know.

    Raises:
        UserError: It is not there.
    """
    tree = _parsed(path, key)
    names = set(_defined(tree.body))
    if name not in names and "*" not in names:
        raise UserError(
            f"{path.name} does not have '{name}'",
            where=key,
            expected=expected_one_of(name, sorted(n for n in names if not n.startswith("_"))),
        )


def _defined(body: Sequence[ast.stmt]) -> Iterator[str]:
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Import() | ast.ImportFrom():
                yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from (n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))
            case ast.If() | ast.Try() | ast.With():
                parts = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
                parts += [handler.body for handler in getattr(node, "handlers", [])]
                for part in parts:
                    yield from _defined(part)


def _with_neighbours(path: Path, root: Path, key: str) -> list[Path]:
    """Return a file, and what it imports from below its root, and so on.

    Raises:
        UserError: They are too many, or too large.
    """
    found, waiting = {path}, [path]
    while waiting:
        here = waiting.pop()
        for used in _neighbours(here, root, key):
            if used not in found:
                found.add(used)
                waiting.append(used)
    total = sum(p.stat().st_size for p in found)
    if len(found) > MOST_FILES or total > MOST_BYTES:
        raise UserError(
            f"{path.name} imports {number_of(len(found), 'file')}, {total} bytes, from below {root}",
            where=key,
            expected=f"at most {MOST_FILES} files and {MOST_BYTES} bytes",
            fix="install them as a package, and name its module",
        )
    return sorted(found)


def _neighbours(path: Path, root: Path, key: str) -> Iterator[Path]:
    package = path.parent
    for node in ast.walk(_parsed(path, key)):
        match node:
            case ast.Import():
                wanted = [(root, alias.name.split(".")) for alias in node.names]
            case ast.ImportFrom(module=module, level=0) if module:
                wanted = [(root, module.split("."))]
            case ast.ImportFrom(module=module, level=level):
                base = package if level == 1 else package.parents[level - 2]
                names = [module] if module else [alias.name for alias in node.names]
                wanted = [(base, name.split(".")) for name in names]
            case _:
                continue
        for base, parts in wanted:
            if not base.is_relative_to(root):
                continue
            yield from _module_files(base, parts[0])


def _module_files(base: Path, name: str) -> Iterator[Path]:
    """Yield the file of a module, or all of a package's: which of its modules are used, its own code decides."""
    single, folder = base / f"{name}.py", base / name
    if single.is_file():
        yield single.resolve()
    elif (folder / "__init__.py").is_file():
        yield from (p.resolve() for p in sorted(folder.rglob("*.py")))
