"""``constraints.txt`` holds on machines that know nothing but the public package index."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import pytest
from resolution import PROCESSORS, PYTHONS, ROOT, IndexUnreachable, Unresolvable, bare_environment, resolve

CONSTRAINTS = (ROOT / "constraints.txt").read_text()
DEVICE_LIBRARY = re.compile(r"nvidia-|cuda-|triton")
"""What torch for accelerators brings, each in the one version that it requires."""

machines = pytest.mark.parametrize(
    ("python", "processor"), [(python, processor) for python in PYTHONS for processor in PROCESSORS]
)


def wanted(install: ModuleType, *more: str) -> list[str]:
    table = install.project()
    return [r for extra in ("", *install.EXTRAS, *more) for r in table[extra]]


def pins(install: ModuleType) -> dict[str, str]:
    return {install.named(x): x.partition("==")[2] for x in CONSTRAINTS.splitlines() if not x.startswith("#")}


@machines
@pytest.mark.parametrize("more", [(), ("dev",)], ids=["run", "dev"])
def test_the_public_index_alone_has_every_version(
    install: ModuleType, resolved: Any, python: str, processor: str, more: tuple[str, ...]
) -> None:
    plan = resolved(wanted(install, *more), CONSTRAINTS, python=python, processor=processor)
    assert plan["torch"] == pins(install)["torch"]
    assert plan["triton"] == pins(install)["triton"]
    open_ones = {name for name in plan if name not in pins(install) and not DEVICE_LIBRARY.match(name)}
    assert open_ones == set(), "not in constraints.txt"


@machines
@pytest.mark.parametrize(
    ("torch", "numpy"),
    [("2.11.0+cu130", "2.4.6"), ("2.9.1+rocm6.4", "2.3.5"), ("2.10.0a0+b558c98.nv25.11", "1.26.4")],
)
def test_beside_a_vendors_torch_neither_torch_nor_its_libraries_are_planned(
    install: ModuleType, resolved: Any, python: str, processor: str, torch: str, numpy: str
) -> None:
    numpy = (
        "2.1.3" if (python, numpy) == ("3.13", "1.26.4") else numpy
    )  # the first with wheels for 3.13 is 2.1
    constraints = install.constraints_beside({"torch": torch, "numpy": numpy, "sympy": "1.13"}, CONSTRAINTS)
    requirements = install.requirements_beside_torch([*install.EXTRAS, "dev"])
    plan = resolved(requirements, constraints, python=python, processor=processor)
    assert {"pandas", "pytest"} <= plan.keys() and plan["numpy"] == numpy
    assert [name for name in plan if name == "torch" or DEVICE_LIBRARY.match(name)] == []


def test_a_triton_that_torch_contradicts_does_not_resolve(install: ModuleType, resolved: Any) -> None:
    wrong = re.sub(r"^triton==.*$", "triton==3.6.0", CONSTRAINTS, flags=re.MULTILINE)
    assert wrong != CONSTRAINTS
    with pytest.raises(Unresolvable, match=r"torch==2\.13\.0 depends on triton"):
        resolved(wanted(install), wrong, python="3.11", processor="x86_64")


def test_a_version_that_one_python_has_no_wheel_of_does_not_resolve(
    install: ModuleType, resolved: Any
) -> None:
    wrong = re.sub(r"^numpy==.*$", "numpy==2.0.0", CONSTRAINTS, flags=re.MULTILINE)
    with pytest.raises(Unresolvable, match="numpy"):
        resolved(["numpy"], wrong, python="3.13", processor="x86_64")


def test_an_index_that_does_not_answer_is_no_contradiction(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with pytest.raises(IndexUnreachable):
        resolve("tabulate", "", python="3.11", processor="x86_64", home=tmp_path)


def test_nothing_of_this_machines_configuration_takes_part(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"PIP_FIND_LINKS": "/x", "PIP_EXTRA_INDEX_URL": "/x", "UV_INDEX_URL": "/x", "UV_FIND_LINKS": "/x"}
    reach = {"PIP_CERT": "/ca.pem", "https_proxy": "http://proxy", "SSL_CERT_FILE": "/ca.pem"}
    for name, value in (told | reach).items():
        monkeypatch.setenv(name, value)
    environment = bare_environment(tmp_path)
    assert not told.keys() & environment.keys()
    assert reach.items() <= environment.items()
    assert environment["PIP_CONFIG_FILE"] == "/dev/null"


def test_the_classifiers_name_the_pythons_that_are_tested() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert tuple(re.findall(r"Python :: (3\.\d+)", text)) == PYTHONS
