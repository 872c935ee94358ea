"""Shapes of models from a folder's ``config.json``: the published ones, and what is said of models of other kinds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from suite_text import load

from paceline.base.errors import UserError
from paceline.families.training.api.sizes import SIZES, shape_of, shape_text, size_of
from paceline.families.training.core.planning.configuration import read_shape, wrong_size
from paceline.spec import content
from paceline.spec.plans.plan import Plan, Selection, make_plan
from paceline.spec.profiles.profile import load_runner

LLAMA: dict[str, Any] = {  # meta-llama/Llama-3.2-1B
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "attention_bias": False,
    "mlp_bias": False,
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "vocab_size": 128256,
}
QWEN: dict[str, Any] = {  # Qwen/Qwen2.5-7B
    "model_type": "qwen2",
    "hidden_act": "silu",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "vocab_size": 152064,
}
SUITE = """\
suite: training/shaped
version: 1
family: training
description: A published shape.
workload: {op: data_parallel, size: SIZE}
baseline: ddp
techniques: [ddp]
matrix: {ranks: [2]}
"""


def written(folder: Path, configuration: dict[str, Any]) -> Path:
    (folder / "config.json").write_text(json.dumps(configuration))
    return folder


def planned(folder: Path, size: str, operation: str = "data_parallel") -> Plan:
    text = SUITE.replace("SIZE", size).replace("data_parallel", operation)
    return make_plan([load(folder, text=text)], load_runner(content.find_runner("local-cpu")), Selection())


@pytest.mark.parametrize(("configuration", "name"), [(LLAMA, "llama-3.2-1b"), (QWEN, "qwen2.5-7b")])
def test_a_folder_gives_the_shape_that_was_published(
    configuration: dict[str, Any], name: str, tmp_path: Path
) -> None:
    assert read_shape(str(written(tmp_path, configuration))) == SIZES[name]


def test_a_newer_librarys_place_of_the_rotary_base_is_read(tmp_path: Path) -> None:
    newer = {key: value for key, value in LLAMA.items() if key != "rope_theta"}
    newer["rope_parameters"] = {"rope_type": "default", "rope_theta": 500000.0}
    assert read_shape(str(written(tmp_path, newer))) == SIZES["llama-3.2-1b"]


@pytest.mark.parametrize("name", [name for name, size in SIZES.items() if size.published])
def test_a_shape_is_read_as_it_was_written_out(name: str) -> None:
    assert shape_of(shape_text(SIZES[name])) == SIZES[name]
    assert wrong_size(shape_text(SIZES[name])) is None


def test_a_point_holds_the_shape_and_needs_no_folder(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    plan = planned(tmp_path, f"hf:{written(tmp_path / 'model', QWEN)}")
    (tmp_path / "model" / "config.json").unlink()
    params = plan.blocks[0]["params"]
    assert params["size"].startswith("shape:L28-d3584-h28-kv4-ff18944-v152064-rope1000000-untied-qkvbias")
    assert size_of(params) == SIZES["qwen2.5-7b"]


def test_a_shape_can_be_swept_as_a_text(tmp_path: Path) -> None:
    plan = planned(tmp_path, "shape:L2-d32-h4-ff96")
    size = size_of(plan.blocks[0]["params"])
    assert (size.layers, size.width, size.heads, size.inner_width, size.gated, size.tied) == (
        2,
        32,
        4,
        96,
        True,
        True,
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "gpt2"}, "is of a model of type 'gpt2'"),
        ({"hidden_act": "gelu"}, "has hidden_act gelu, which the family's model does not have"),
        ({"head_dim": 128}, "has head_dim 128"),
        ({"attention_bias": True}, "has attention_bias True"),
        ({"num_hidden_layers": "many"}, "has no whole number above zero for num_hidden_layers"),
        ({"vocab_size": None}, "for vocab_size"),
        (
            {"num_attention_heads": 3, "head_dim": None},
            "a width of 2048 is no even number for each of 3 heads",
        ),
    ],
)
def test_models_of_other_kinds_are_named(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        read_shape(str(written(tmp_path, LLAMA | change)))


@pytest.mark.parametrize(("text", "said"), [("{", "is no JSON"), ("[1]", "holds no object")])
def test_what_is_no_configuration_is_named(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError, match=said):
        read_shape(str(tmp_path))


def test_a_folder_that_is_not_there_has_the_suites_line_and_what_fetches_it(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"workload.size: Qwen/Qwen2.5-0.5B/config.json cannot be read"
    ) as refused:
        planned(tmp_path, "hf:Qwen/Qwen2.5-0.5B")
    assert "hf download Qwen/Qwen2.5-0.5B config.json" in (refused.value.fix or "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("big", "'big' is not a legal size"),
        ("shape:L2-d32", "the shape does not say h"),
        ("shape:L2-d32-h4-deep3", "'deep3' of the shape is not one of"),
        ("shape:L2-d32-h4-L3", "'L3' of the shape is not one of"),
        ("shape:Ltwo-d32-h4", "'Ltwo' of the shape is not one of"),
        ("shape:L0-d32-h4", "'L0' of the shape is not one of"),
        ("shape:L2-d36-h4-", "'' of the shape is not one of"),
        ("shape:L2-d36-h4", "no even number for each of 4 heads"),
    ],
)
def test_mistakes_in_a_shape_are_named(text: str, said: str) -> None:
    assert said in str(wrong_size(text))


def test_only_data_parallelism_trains_published_kinds(tmp_path: Path) -> None:
    plan = planned(tmp_path, f"hf:{written(tmp_path, LLAMA)}", operation="fine_tune")
    assert "which only data_parallel trains" in plan.data["skipped"][0]["reason"]
