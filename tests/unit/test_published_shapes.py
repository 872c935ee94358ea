"""Layers of published models: their sizes, the same numbers as in ``transformers``, and memory that is foretold."""

from __future__ import annotations

import json
from functools import partial

import pytest
import torch
from click.testing import CliRunner
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from paceline.base.families.family import load_family
from paceline.cli import application
from paceline.families.training.api.model import Transformer, loss_and_gradients, next_symbol_loss
from paceline.families.training.api.sizes import SIZES, Size, num_symbols, size_of
from paceline.families.training.core.memory.footprint import footprint
from paceline.families.training.core.memory.transients import Transients
from paceline.families.training.core.planning.legality import problems
from paceline.families.training.core.planning.parameters import KEPT, RECOMPUTED
from paceline.families.training.ops.data_parallel.spec import own_problems

PUBLISHED = {
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
}
"""Parameters that the models' pages on the hub count in their weights."""
LLAMA = Size(
    layers=2,
    width=64,
    heads=4,
    kv_heads=2,
    inner=96,
    gated=True,
    tied=False,
    symbols=101,
    rotary_base=500_000.0,
)
QWEN = Size(
    layers=2,
    width=64,
    heads=4,
    kv_heads=1,
    inner=112,
    gated=True,
    qkv_bias=True,
    symbols=101,
    rotary_base=1e6,
)
NAMES = {
    "input_layernorm.weight": "attention_norm.gain",
    "post_attention_layernorm.weight": "mlp_norm.gain",
    "self_attn.o_proj.weight": "mix.weight",
    "mlp.down_proj.weight": "down.weight",
}


def point(**more: object) -> dict[str, object]:
    family = load_family("training")
    found = {p.name: p.default for p in family.parameters_for("data_parallel")}
    return {**found, "op": "data_parallel", **more}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_shape_has_as_many_parameters_as_its_weights(name: str) -> None:
    size = SIZES[name]
    assert size.parameters(num_symbols(size, "markov")) == PUBLISHED[name]


@pytest.mark.parametrize("name", SIZES)
def test_the_closed_form_counts_what_the_model_has(name: str) -> None:
    size = SIZES[name]
    with torch.device("meta"):
        model = Transformer(size, vocabulary=num_symbols(size, "bytes"), context=8)
    assert sum(p.numel() for p in model.parameters()) == size.parameters(num_symbols(size, "bytes"))


@pytest.mark.parametrize("size", [LLAMA, QWEN])
def test_operations_are_what_torch_counts(size: Size) -> None:
    model, context = Transformer(size, vocabulary=size.symbols, context=32), 32
    model.initialise(1)
    counter = FlopCounterMode(display=False)
    with counter:
        next_symbol_loss(model, torch.randint(size.symbols, (3, context + 1))).backward()  # type: ignore[no-untyped-call]
    products = counter.get_total_flops()
    counts = counter.get_flop_counts()["Global"]
    attention = sum(n for operator, n in counts.items() if "attention" in str(operator))
    assert (products - attention) / (3 * context) == 6 * size.weights(size.symbols)


@pytest.mark.parametrize(("size", "kind"), [(LLAMA, "Llama"), (QWEN, "Qwen2")])
def test_logits_are_those_of_transformers(size: Size, kind: str) -> None:
    import transformers

    config = getattr(transformers, f"{kind}Config")(
        vocab_size=size.symbols,
        hidden_size=size.width,
        intermediate_size=size.inner,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        tie_word_embeddings=size.tied,
        rope_parameters={"rope_type": "default", "rope_theta": size.rotary_base},
        rms_norm_eps=1e-6,
    )
    own = Transformer(size, vocabulary=size.symbols, context=24)
    own.initialise(3)
    with torch.no_grad():
        for parameter in own.parameters():  # larger than at the start, so that every part of a layer shows
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(7)) * 0.1)
    theirs = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    theirs.load_state_dict(_their_names(own, size), strict=False)
    if size.tied:
        theirs.tie_weights()
    symbols_BT = torch.randint(size.symbols, (2, 24), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        expected_BTV, found_BTV = theirs(symbols_BT).logits, own(symbols_BT)
    torch.testing.assert_close(found_BTV, expected_BTV, atol=2e-5, rtol=1e-5)
    with torch.no_grad():
        own.get_parameter("layers.0.up.weight")[: size.inner] *= 1.01
        assert (own(symbols_BT) - expected_BTV).abs().max() > 1e-4  # a gate that is one per cent off shows


def _their_names(own: Transformer, size: Size) -> dict[str, torch.Tensor]:
    keys = size.num_kv_heads * size.head_width
    found = {"model.embed_tokens.weight": own.embedding.weight, "model.norm.weight": own.norm.gain}
    if own.head is not None:
        found["lm_head.weight"] = own.head.weight
    for number, layer in enumerate(own.layers):
        at = f"model.layers.{number}"
        found |= {f"{at}.{theirs}": layer.get_parameter(mine) for theirs, mine in NAMES.items()}
        for what in ("weight", "bias") if size.qkv_bias else ("weight",):
            parts = torch.split(layer.get_parameter(f"qkv.{what}"), [size.width, keys, keys])
            found |= {f"{at}.self_attn.{n}_proj.{what}": p for n, p in zip("qkv", parts, strict=True)}
        gate, value = layer.get_parameter("up.weight").chunk(2)
        found |= {f"{at}.mlp.gate_proj.weight": gate, f"{at}.mlp.up_proj.weight": value}
    return {name: tensor.detach().clone() for name, tensor in found.items()}


def test_techniques_that_take_layers_apart_refuse_a_published_shape() -> None:
    found = problems(point(size="llama-100m"))  # type: ignore[arg-type]
    assert found == ["size llama-100m has the layers of a published model, which only data_parallel trains"]
    assert problems(point(size="llama-100m"), published_shapes=True) == []  # type: ignore[arg-type]


def test_kv_heads_of_a_point_come_before_those_of_its_size() -> None:
    assert size_of({"size": "llama-100m", "kv_heads": None}).num_kv_heads == 4
    assert size_of({"size": "llama-100m", "kv_heads": 6}).num_kv_heads == 6


@pytest.mark.parametrize("activations", [KEPT, RECOMPUTED])
@pytest.mark.parametrize("name", ["small", pytest.param("llama-100m", marks=pytest.mark.full)])
def test_activations_are_foretold_without_memory_and_seen_in_a_real_step(name: str, activations: str) -> None:
    params = point(size=name, batch=4, context=32, ranks=2, steps=40, activations=activations)
    found = footprint(params, "paceline.baselines.training.ddp", {"bucket_bytes": 1 << 20})  # type: ignore[arg-type]
    size = SIZES[name]
    model = Transformer(size, vocabulary=num_symbols(size, "markov"), context=32)
    if activations == RECOMPUTED:
        model.recompute_layers()
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None))
    counted = Transients()
    with counted:
        next_symbol_loss(model, torch.randint(64, (2, 33))).backward()  # type: ignore[no-untyped-call]
    assert found.activation_bytes == pytest.approx(counted.peak_bytes, rel=0.02)
    assert found.state_bytes == 16 * found.parameters  # weights, gradients and two moments of four bytes each


@pytest.mark.parametrize("name", ["llama-3.2-1b", pytest.param("llama-3.1-70b", marks=pytest.mark.full)])
def test_a_published_model_is_planned_without_its_memory(name: str) -> None:
    params = point(size=name, batch=8, context=4096, ranks=8, steps=40, dtype="bfloat16")
    whole = footprint(params, "paceline.baselines.training.ddp", {"bucket_bytes": 1 << 20})  # type: ignore[arg-type]
    shared = footprint(params, "paceline.baselines.training.fsdp", {"reshard": True})  # type: ignore[arg-type]
    assert whole.state_bytes == 16 * PUBLISHED[name]
    assert shared.state_bytes == pytest.approx(2 * PUBLISHED[name], rel=1e-3)
    # Its layers keep at least the stream and what SwiGLU needs of 4096 positions, in two bytes.
    layers, width, gated = {"llama-3.2-1b": (16, 2048, 8192), "llama-3.1-70b": (80, 8192, 28_672)}[name]
    assert whole.activation_bytes > layers * 4096 * (2 * gated + width) * 2


def test_the_plan_prints_who_fits() -> None:
    arguments = ["plan", "training/published-shapes", "--memory"]
    result = CliRunner().invoke(application, arguments)
    assert result.exit_code == 0, result.output
    assert "100 M" in result.output and "trains: whether all ranks have room" in result.output
    facts = json.loads(CliRunner().invoke(application, [*arguments, "--json"]).output)
    assert {f["technique"] for f in facts} >= {"ddp", "fsdp", "diloco"}
    states = {f["technique"]: f["state_bytes"] / f["parameters"] for f in facts if f["state_bytes"]}
    assert states["ddp"] == 16 and states["diloco"] == 24 and states["fsdp"] == pytest.approx(8, rel=1e-3)
    other = CliRunner().invoke(application, ["plan", "collectives/all-reduce", "--memory"])
    assert "nobody can foretell the memory of this plan" in other.output


def test_layers_that_recompute_keep_their_inputs_alone() -> None:
    point_of = partial(point, size="llama-100m", batch=4, context=256, ranks=2, steps=40)
    module, options = "paceline.baselines.training.ddp", {"bucket_bytes": 1 << 20}
    kept, recomputed = (
        footprint(point_of(activations=name), module, options)  # type: ignore[arg-type]
        for name in (KEPT, RECOMPUTED)
    )
    assert recomputed.state_bytes == kept.state_bytes
    assert recomputed.activation_bytes < 0.5 * kept.activation_bytes


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_recomputed_gradients_are_those_of_kept_activations(dtype: torch.dtype | None) -> None:
    sequences = torch.randint(64, (2, 33), generator=torch.Generator().manual_seed(3))
    found = []
    for recomputes in (False, True):
        model = Transformer(SIZES["tiny"], vocabulary=64, context=32)
        model.initialise(5)
        model.narrow = dtype
        if recomputes:
            model.recompute_layers()
        loss = loss_and_gradients(model, sequences)
        found.append([loss, *(p.grad for p in model.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_a_model_of_ones_own_recomputes_what_it_says_itself() -> None:
    given = {"op": "data_parallel", "model": "m.py:make", "activations": RECOMPUTED, "size": None}
    assert any("says itself what it computes again" in text for text in own_problems(point(**given)))
    assert own_problems(point(**given | {"activations": KEPT})) == []


def test_a_linear_layer_is_not_mistaken_for_a_gated_one() -> None:
    layer = Transformer(SIZES["nano"], vocabulary=64, context=4).layers[0]
    assert isinstance(layer.up, nn.Linear) and layer.up.out_features == 4 * SIZES["nano"].width
