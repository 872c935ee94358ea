"""Files in KernelBench's and flashinfer-bench's layouts: what is written around them, and what is wrong with others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from foreign_kernels import HONEST, REFERENCE, solution

from paceline.base.errors import EXIT_USAGE, UserError
from paceline.base.techniques.technique import read_source
from paceline.cli import application
from paceline.families.kernels.api.custom import as_plain, from_plain
from paceline.families.kernels.ops.custom.reference import Custom
from paceline.worker.ranks.session import CaseError
from paceline.workflows.foreign_kernels import read_candidates, suite_of

DEFINITION: dict[str, Any] = {
    "name": "add",
    "axes": {"M": {"type": "var"}, "N": {"type": "const", "value": 8}},
    "inputs": {"a": {"shape": ["M", "N"], "dtype": "float32"}},
    "outputs": {"c": {"shape": ["M", "N"], "dtype": "float32"}},
    "reference": "def run(a):\n    return a + 1\n",
}
SOLUTION: dict[str, Any] = {
    "name": "mine",
    "definition": "add",
    "spec": {"language": "python", "entry_point": "main.py::run"},
    "sources": [{"path": "main.py", "content": "def run(a):\n    return 1 + a\n"}],
}
WORKLOAD: dict[str, Any] = {"workload": {"axes": {"M": 3}, "inputs": {"a": {"type": "random"}}}}


def written(folder: Path, **texts: str | dict[str, Any]) -> dict[str, Path]:
    paths = {}
    for name, text in texts.items():
        base, _, ending = name.rpartition("_")
        paths[name] = folder / f"{base}.{ending}"
        paths[name].write_text(text if isinstance(text, str) else json.dumps(text))
    return paths


def test_a_file_keeps_its_lines_and_becomes_a_technique(tmp_path: Path) -> None:
    files = written(tmp_path, softmax_py=REFERENCE, mine_py=solution(HONEST["same"]))
    compared = read_candidates(files["softmax_py"], [files["mine_py"]], None)
    (mine,) = compared.candidates
    assert mine.text.startswith(files["mine_py"].read_text().rstrip())
    path = tmp_path / f"{mine.module}.py"
    path.write_text(mine.text)
    (source,) = read_source(path, module=f"user:{path.stem}")
    assert (source.info.name, source.info.implements) == (mine.name, ("custom",))
    suite = suite_of(compared, dtype="float32", threads=1, margin=None, timeout="60s")
    assert suite["techniques"][1] == {"technique": mine.name, "as": "mine"}
    assert suite == suite_of(compared, dtype="float32", threads=1, margin=None, timeout="60s")


def test_two_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    paths = []
    for folder in folders:
        folder.mkdir()
        paths.append(written(folder, mine_py=solution(HONEST["same"]))["mine_py"])
    reference = written(tmp_path, softmax_py=REFERENCE)["softmax_py"]
    assert [c.label for c in read_candidates(reference, paths, None).candidates] == ["mine", "mine-2"]


@pytest.mark.parametrize(
    ("texts", "arguments", "says"),
    [
        (
            {"r_py": "class Model: pass", "s_py": "class ModelNew: pass"},
            ("r_py", "s_py"),
            "no get_inputs, no get_init_inputs",
        ),
        ({"r_py": REFERENCE, "s_py": "class Model: pass"}, ("r_py", "s_py"), "the file has no ModelNew"),
        ({"r_py": REFERENCE, "s_py": "class ModelNew(:\n"}, ("r_py", "s_py"), "s.py:1: not valid Python"),
        ({"r_py": REFERENCE, "s_json": SOLUTION}, ("r_py", "s_json"), "needs a definition"),
        ({"r_py": REFERENCE}, ("r_py", "gone.py"), "cannot read the file"),
        ({"r_json": "{", "s_py": ""}, ("r_json", "s_py"), "not JSON"),
        ({"r_json": "[]", "s_py": ""}, ("r_json", "s_py"), "not an object of JSON"),
        (
            {"r_json": DEFINITION | {"reference": 3}, "s_json": SOLUTION},
            ("r_json", "s_json"),
            "has no 'reference'",
        ),
        ({"r_json": DEFINITION, "s_json": SOLUTION}, ("r_json", "s_json"), "the axis M has no size"),
        (
            {"r_json": DEFINITION, "s_json": SOLUTION, "w_jsonl": "nonsense"},
            ("r_json", "s_json", "--workloads", "w_jsonl"),
            "w.jsonl:1: not a line of JSON",
        ),
        (
            {"r_json": DEFINITION, "s_json": SOLUTION, "w_jsonl": "{}"},
            ("r_json", "s_json", "--workloads", "w_jsonl"),
            "the line is no workload",
        ),
        (
            {"r_json": DEFINITION, "s_json": SOLUTION | {"definition": "other"}, "w_jsonl": WORKLOAD},
            ("r_json", "s_json", "--workloads", "w_jsonl"),
            "the solution is of 'other'",
        ),
        (
            {
                "r_json": DEFINITION,
                "s_json": SOLUTION | {"spec": {"language": "cuda", "entry_point": "main.cu::run"}},
                "w_jsonl": WORKLOAD,
            },
            ("r_json", "s_json", "--workloads", "w_jsonl"),
            "solutions in 'cuda' are not built here",
        ),
        (
            {
                "r_json": DEFINITION | {"inputs": {"a": {"shape": ["M"], "dtype": "int32"}}},
                "s_json": SOLUTION,
                "w_jsonl": WORKLOAD,
            },
            ("r_json", "s_json", "--workloads", "w_jsonl"),
            "random numbers of 'int32'",
        ),
        (
            {"r_py": REFERENCE, "s_py": "ModelNew = 1", "w_jsonl": WORKLOAD},
            ("r_py", "s_py", "--workloads", "w_jsonl"),
            "a reference of KernelBench has its own inputs",
        ),
    ],
)
def test_a_file_in_another_layout_is_a_clear_line(
    tmp_path: Path, texts: dict[str, str | dict[str, Any]], arguments: tuple[str, ...], says: str
) -> None:
    files = written(tmp_path, **texts)
    words = [str(files.get(word, word)) for word in arguments]
    outcome = CliRunner().invoke(application, ["kernel", *words, "--results", str(tmp_path / "results")])
    assert isinstance(outcome.exception, UserError), outcome.output
    assert outcome.exception.exit_code == EXIT_USAGE
    assert says in str(outcome.exception)
    assert not (tmp_path / "results").exists()


def test_arguments_of_constructors_survive_the_way() -> None:
    value = [1, 2.5, "same", None, True, (3, (4, 5)), {"padding": (1, 1)}]
    assert from_plain(json.loads(json.dumps(as_plain(value)))) == value
    with pytest.raises(CaseError, match="an argument is a Tensor"):
        as_plain([torch.ones(1)])


def operator(
    tmp_path: Path, forward: str, inputs: str = "[torch.randn(4, 8)]", dtype: torch.dtype = torch.float32
) -> Custom:
    path = tmp_path / "reference.py"
    path.write_text(
        "import torch\n\nclass Model(torch.nn.Module):\n"
        f"    def forward(self, *given):\n        {forward}\n\n"
        f"def get_inputs():\n    return {inputs}\n\ndef get_init_inputs():\n    return []\n"
    )
    return Custom(path, 0, dtype, "cpu")


def test_draws_are_fresh_and_follow_from_their_seed(tmp_path: Path) -> None:
    made = operator(tmp_path, "return given[0].exp()")
    one, again, other = (made.draw({}, torch.float32, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.inputs[0], again.inputs[0])
    assert not torch.equal(one.inputs[0], other.inputs[0])
    assert torch.equal(one.expected[0].value, one.inputs[0].double().exp())


def test_what_float64_cannot_recompute_is_judged_within_a_stated_tolerance(tmp_path: Path) -> None:
    made = operator(tmp_path, "return given[0].float().sqrt()", inputs="[torch.rand(4, 8)]")
    assert "within 0.0001" in made.oracle
    (expected,) = made.draw({}, torch.float32, seed=1).expected
    assert torch.allclose(torch.as_tensor(expected.bound), 1e-4 + 1e-4 * expected.value)


def test_whole_numbers_must_be_equal_and_constants_are_handed_on(tmp_path: Path) -> None:
    made = operator(tmp_path, "return given[0].argmax(given[1])", inputs="[torch.randn(4, 8), 1]")
    assert made.pattern == [["tensor", 0], ["value", 1]]
    (expected,) = made.draw({}, torch.float32, seed=1).expected
    assert expected.bound == 0.0
    assert made.outputs[0].dtype == torch.float64


@pytest.mark.parametrize(
    ("forward", "inputs", "status", "says"),
    [
        (
            "return torch.nn.functional.dropout(given[0])",
            "[torch.ones(64)]",
            "unsupported",
            "another result for the same inputs",
        ),
        ("return 'text'", "[torch.ones(4)]", "unsupported", "is a str"),
        ("return given[0] / 0", "[torch.ones(4)]", "unsupported", "holds NaN or infinity"),
        ("return given[1]", "[torch.ones(4)]", "crashed", "the reference fails: IndexError"),
        ("return given[0]", "[torch.ones(4) > 0]", "unsupported", "input 0 is of torch.bool"),
        ("return given[0]", "[object()]", "unsupported", "an argument is a object"),
    ],
)
def test_a_reference_that_cannot_judge_says_why(
    tmp_path: Path, forward: str, inputs: str, status: str, says: str
) -> None:
    with pytest.raises(CaseError) as error:
        operator(tmp_path, forward, inputs)
    assert error.value.status == status
    assert says in error.value.reason
