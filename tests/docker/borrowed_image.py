"""An image in seconds: this machine's Python with its libraries, and room for the environment that tests run in.

Torch and numpy are mounted where the image has their names alone: copied, they would take longer than all the rest.
"""

from __future__ import annotations

import io
import subprocess
import sys
import sysconfig
import tarfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

NAME = "paceline/borrowed:local"
CLASS = "borrowed"
USER = "10001:10001"
ENVIRONMENT = Path("/opt/environment")
"""Of Python in the image; the tests' own may lie below /tmp, which is empty in a container."""
PROGRAMS = ("/bin/sh", "/bin/cat", "/usr/bin/dirname")
MOUNTED = ("torch", "numpy")
LEFT_OUT = frozenset(("__pycache__", "dist-packages", "site-packages", "test"))


def settings() -> dict[str, object]:
    """Return what a profile's section ``docker`` says to use the image."""
    return {"image": NAME, "mounts": [f"{sysconfig.get_path('purelib')}:{_packages()}"]}


def make(engine: Any, folder: Path) -> None:
    """Make the image in an engine; ``folder`` is for what is sent to it."""
    path = folder / "image.tar"
    with tarfile.open(path, "w") as archive:
        _fill(archive)
    changes = (
        f"USER {USER}",
        f"ENV PATH={ENVIRONMENT}/bin:/usr/bin:/bin",
        f"LABEL io.paceline.image-class={CLASS}",
    )
    repository, tag = NAME.split(":")
    said = engine.import_image_from_file(str(path), repository=repository, tag=tag, changes=changes)
    path.unlink()
    assert "sha256:" in said, said


def _packages() -> Path:
    return ENVIRONMENT / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"


def _fill(archive: tarfile.TarFile) -> None:
    """Write the whole image."""
    for path in map(Path, ("/bin", "/lib", "/lib64")):
        if path.is_symlink():
            archive.add(path, arcname=path)
    python = Path(sys.executable).resolve()
    library = Path(sysconfig.get_path("stdlib"))
    archive.add(library, arcname=library, filter=_kept)
    for path in (python, *map(Path, PROGRAMS), *_libraries(python, *library.glob("lib-dynload/*.so"))):
        archive.add(path.resolve(), arcname=path.parent.resolve() / path.name)
    _write(archive, ENVIRONMENT / "pyvenv.cfg", f"home = {python.parent}\n")
    _link(archive, ENVIRONMENT / "bin" / "python3", python)
    for name in MOUNTED:
        _write(archive, _packages() / name / "__init__.py", "")
        found = distribution(name)
        told = f"Metadata-Version: 2.1\nName: {name}\nVersion: {found.version}\n"
        _write(archive, _packages() / f"{name}-{found.version}.dist-info" / "METADATA", told)
    for path in map(Path, ("/etc/os-release", "/var/lib/dpkg/status")):
        if path.exists():
            archive.add(path.resolve(), arcname=path)


def _libraries(*programs: Path) -> list[Path]:
    """Return the shared libraries of this system that programs, and torch, are linked with."""
    packages = Path(sysconfig.get_path("purelib"))
    linked = [*programs, *map(Path, PROGRAMS), *packages.glob("torch/lib/libtorch*.so")]
    told = subprocess.run(["ldd", *linked], capture_output=True, text=True, check=False).stdout
    words = {word for line in told.splitlines() if not line.endswith(":") for word in line.split()}
    found = {Path(word) for word in words if word.startswith("/")}
    return sorted(path for path in found if not path.is_relative_to(packages))


def _kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if LEFT_OUT & set(Path(entry.name).parts) else entry


def _write(archive: tarfile.TarFile, path: Path, text: str) -> None:
    entry = tarfile.TarInfo(str(path))
    entry.size, entry.mode = len(text.encode()), 0o644
    archive.addfile(entry, io.BytesIO(text.encode()))


def _link(archive: tarfile.TarFile, path: Path, to: Path) -> None:
    entry = tarfile.TarInfo(str(path))
    entry.type, entry.linkname = tarfile.SYMTYPE, str(to)
    archive.addfile(entry)
