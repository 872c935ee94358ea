"""Where suites, runners, baselines and report templates come from.

Roots are searched in order: the folders of ``PACELINE_CONTENT`` (separated by ``:``), the checkout that this package
is installed from, then the copy inside the wheel. Each root has the same shape (``suites/``, ``runners/``,
``baselines/``, ``reports/``); a name found in an earlier root wins, except that two techniques of one name are an
error, since a silent override would change what a number means.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from importlib import metadata, util
from pathlib import Path

from paceline.base.aliases import SUITES
from paceline.base.errors import UserError, UserErrors, expected_one_of
from paceline.base.families.family import Family, load_family
from paceline.base.files.stamp import is_settled, stamp_of
from paceline.base.techniques.technique import TechniqueSource, read_source
from paceline.spec.techniques.rules import strange_operations, technique_errors

ENVIRONMENT_VARIABLE = "PACELINE_CONTENT"
ENTRY_POINT_GROUP = "paceline.techniques"


def content_roots() -> list[Path]:
    """Return the existing content roots, most specific first.

    Raises:
        UserError: A folder named in ``PACELINE_CONTENT`` does not exist.
    """
    roots: list[Path] = []
    for part in filter(None, os.environ.get(ENVIRONMENT_VARIABLE, "").split(os.pathsep)):
        root = Path(part).resolve()
        if not root.is_dir():
            raise UserError(
                f"the content folder '{part}' does not exist",
                where=ENVIRONMENT_VARIABLE,
                fix=f"mkdir -p {part}, or unset {ENVIRONMENT_VARIABLE}",
            )
        roots.append(root)
    shipped = shipped_root()
    if shipped not in roots:
        roots.append(shipped)
    return roots


def shipped_root() -> Path:
    """Return the checkout's top folder, or ``_content`` inside an installed wheel."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "_content"
    return inside if inside.is_dir() else package.parents[1]


def checkout_root() -> Path | None:
    """Return the git checkout that this package runs from, or None when it runs from a wheel."""
    root = shipped_root()
    return root if (root / "pyproject.toml").is_file() else None


def suite_files() -> dict[str, Path]:
    """Map ``family/suite`` to its file over all roots."""
    return _named_files("suites", ".yaml")


def runner_files() -> dict[str, Path]:
    """Map runner names to their profile files over all roots."""
    return {name: path for name, path in _named_files("runners", ".yaml").items() if "/" not in name}


def find_suite(name: str) -> Path:
    """Return the file of a suite given by path or by name (``collectives/all-reduce``); old names are known.

    Raises:
        UserError: Neither a file nor a known suite.
    """
    return _find(SUITES.today(name), suite_files(), kind="suite")


def find_runner(name: str) -> Path:
    """Return the file of a runner profile given by path or by name (``local-cpu``)."""
    return _find(name, runner_files(), kind="runner")


def report_templates() -> Path:
    """Return the folder of HTML templates and styles."""
    for root in content_roots():
        if (root / "reports").is_dir():
            return root / "reports"
    raise UserError("no content root has a 'reports' folder", fix="reinstall paceline")


def docs_folder() -> Path:
    """Return the folder of the documents: those of this version, whatever other content roots hold."""
    return shipped_root() / "docs"


def batch_template() -> Path:
    """Return the template of batch scripts; one in a content root of the user's own comes first."""
    for root in content_roots():
        path = root / "runners" / "templates" / "job.sbatch.j2"
        if path.is_file():
            return path
    raise UserError("no content root has runners/templates/job.sbatch.j2", fix="reinstall paceline")


def ledger_file() -> Path:
    """Return the claims ledger ``baselines/papers.yaml``."""
    for root in content_roots():
        path = root / "baselines" / "papers.yaml"
        if path.is_file():
            return path
    raise UserError("no content root has baselines/papers.yaml", fix="reinstall paceline")


def techniques(family: str, *, extra: Iterable[Path] = ()) -> dict[str, TechniqueSource]:
    """Return every technique of a family by name, read from source.

    Args:
        family: Name of the family.
        extra: Further Python files given by the user.

    Raises:
        UserError: Two files declare the same technique, or a file cannot be read.
        UserErrors: Techniques promise or require what their operations do not know.
    """
    found: dict[str, TechniqueSource] = {}
    wrong: list[UserError] = []
    own = {p.resolve(): f"user:{p.stem}" for p in extra}
    for path, module in [*_technique_files(family), *own.items()]:
        for source in _declared_in(path, module):
            if source.info.family != family:
                continue
            earlier = found.get(source.info.name)
            if earlier is not None and earlier.path != source.path:
                raise UserError(
                    f"the technique '{source.info.name}' is declared twice",
                    where=f"{source.path}:{source.line}",
                    expected=f"another name: {earlier.path}:{earlier.line} already has it",
                )
            found[source.info.name] = source
            # of an operation whose folder is gone nobody can say what it knows; `declared` and validate name it
            if path in own or not strange_operations(source.info):
                wrong += _known_errors(source, load_family(family))
    if wrong:
        raise UserErrors(wrong)
    return dict(sorted(found.items()))


def _declared_in(path: Path, module: str) -> Sequence[TechniqueSource]:
    """Return the techniques of a file; as long as it stays as it is, it is read once a process and not once a suite."""
    try:
        stamp = stamp_of(path)
    except OSError:
        return read_source(path, module=module)  # which says what is wrong
    if not is_settled(stamp, time.time_ns()):
        return read_source(path, module=module)
    return _declared_at(path, module, tuple(stamp))


@lru_cache(maxsize=4096)
def _declared_at(path: Path, module: str, _stamp: tuple[int, ...]) -> tuple[TechniqueSource, ...]:
    return tuple(read_source(path, module=module))


@lru_cache(maxsize=4096)
def _known_errors(source: TechniqueSource, family: Family) -> tuple[UserError, ...]:
    """Return the mistakes in a technique; looked for once, however many suites of its family are read."""
    return tuple(technique_errors(source))


def baseline_files(family: str) -> list[Path]:
    """Return the modules of a family's reference techniques; of two with one name that of the more specific root."""
    found: dict[str, Path] = {}
    for root in content_roots():
        for path in sorted((root / "baselines" / family).glob("*.py")):
            found.setdefault(path.name, path)
    return list(found.values())


def _technique_files(family: str) -> list[tuple[Path, str]]:
    files: list[tuple[Path, str]] = []
    for root in content_roots():
        folder = root / "baselines" / family
        if folder.is_dir():
            files += [
                (path, f"paceline.baselines.{family}.{path.stem}")
                for path in sorted(folder.glob("*.py"))
                if not path.name.startswith("_")
            ]
    for entry in entry_points():
        specification = util.find_spec(entry.value.partition(":")[0])
        if specification is not None and specification.origin:
            files.append((Path(specification.origin), specification.name))
    return files


@cache
def entry_points() -> tuple[metadata.EntryPoint, ...]:
    """Return the techniques that installed packages declare: finding them reads the metadata of every package."""
    return tuple(metadata.entry_points(group=ENTRY_POINT_GROUP))


def _named_files(folder: str, suffix: str) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for root in content_roots():
        base = root / folder
        for path in sorted(base.rglob(f"*{suffix}")):
            name = str(path.relative_to(base).with_suffix(""))
            found.setdefault(name, path)
    return found


def _find(name: str, files: dict[str, Path], *, kind: str) -> Path:
    if name in files:
        return files[name]
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.exists():
        if not path.exists():
            raise UserError(f"no such {kind} file", where=name, expected=expected_one_of(name, files))
        return path
    raise UserError(f"unknown {kind} '{name}'", expected=expected_one_of(name, files))


@cache
def _digest(path: str, modified_ns: int, size: int) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def sha256_file(path: Path) -> str:
    """Return the hex digest of a file's bytes."""
    status = path.stat()
    return _digest(str(path), status.st_mtime_ns, status.st_size)
