"""Files of a user's own that points name: which are found, what goes along, and what is said of those that are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.base.errors import UserError
from paceline.base.files.own_code import INSTALLED, find_code, is_reference

NET = "import os\nimport layers\nfrom helpers.more import thing\n\ndef make():\n    from late import x\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {
        "net.py": NET,
        "layers.py": "from . import nothing\n",
        "late.py": "x = 1\n",
        "unused.py": "y = 2\n",
        "helpers/__init__.py": "",
        "helpers/more.py": "thing = 3\n",
        "helpers/other.py": "",
        "models/small.py": "import parts\n\nmake = dict\n",
        "models/parts.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_what_a_file_imports_from_beside_it_goes_along_and_nothing_else(folder: Path) -> None:
    found = find_code({"model": "net.py:make"}, folder)
    names = {"net.py", "layers.py", "late.py", "helpers/__init__.py", "helpers/more.py", "helpers/other.py"}
    assert set(found.files) == {f"0/{name}" for name in names}
    place = found.places["net.py:make"]
    assert (place.module, place.name, place.root) == ("net", "make", "0")


def test_files_in_two_folders_are_imported_each_from_its_own(folder: Path) -> None:
    found = find_code({"data": "layers:nothing", "model": "models/small.py:make"}, folder)
    assert set(found.files) == {"0/layers.py", "1/small.py", "1/parts.py"}
    assert found.places["models/small.py:make"].root == "1"


def test_the_digest_changes_with_any_of_the_files_and_with_nothing_else(folder: Path) -> None:
    before = find_code({"model": "net.py:make"}, folder).digest
    (folder / "unused.py").write_text("y = 4\n")
    assert find_code({"model": "net.py:make"}, folder).digest == before
    (folder / "helpers" / "more.py").write_text("thing = 4\n")
    assert find_code({"model": "net.py:make"}, folder).digest != before


def test_an_installed_module_is_named_and_not_copied(tmp_path: Path) -> None:
    found = find_code({"loss": "json.decoder:JSONDecoder"}, tmp_path)
    assert set(found.files) == {f"{INSTALLED}json.decoder"}
    assert found.places["json.decoder:JSONDecoder"].root is None


@pytest.mark.parametrize(
    ("text", "what", "expected"),
    [
        ("nets.py:make", "there is no file", "did you mean 'net.py'"),
        ("net.py:mak", "net.py does not have 'mak'", "did you mean 'make'"),
        ("nowhere.deep:make", "there is no module 'nowhere.deep'", "FILE.py:NAME beside the suite"),
        ("net.py", "'net.py' names no object of a module", "FILE.py:NAME beside the suite"),
        ("my-net.py:make", "'my-net.py' cannot be imported", "letters, digits"),
        ("wrong.py:make", "wrong.py:1 is no Python", ""),
    ],
)
def test_what_is_not_found_is_said_with_what_would_be(
    folder: Path, text: str, what: str, expected: str
) -> None:
    (folder / "my-net.py").write_text(NET)
    (folder / "wrong.py").write_text("def make(: pass")
    with pytest.raises(UserError) as refused:
        find_code({"model": text}, folder)
    assert what in refused.value.what
    assert expected in (refused.value.expected or "")
    assert refused.value.where == "model"


def test_what_a_star_import_brings_nobody_can_refuse(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("from torch.nn import *\n")
    assert find_code({"model": "net.py:Linear"}, tmp_path).places["net.py:Linear"].name == "Linear"


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    (tmp_path / "net.py").write_text("import all\nmake = 1\n")
    for number in range(201):
        (tmp_path / "all" / f"m{number}.py").write_text("")
    (tmp_path / "all" / "__init__.py").write_text("")
    with pytest.raises(UserError, match="imports 203 files") as refused:
        find_code({"model": "net.py:make"}, tmp_path)
    assert "install them as a package" in (refused.value.fix or "")


@pytest.mark.parametrize("text", ["net.py:make", "../net.py:make", "a.b.c:make", "torch.nn:Linear"])
def test_references_have_two_forms(text: str) -> None:
    assert is_reference(text)


@pytest.mark.parametrize("text", ["markov", "net.py", "net.py:", "net:make:it", "a/b:make", "net.py:make()"])
def test_other_texts_are_none(text: str) -> None:
    assert not is_reference(text)
