"""A user's module: how it is called, what its loss is, which parts are gathered one by one, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from paceline.families.training.api.matrices import as_matrix
from paceline.families.training.api.model import loss_and_gradients, loss_of
from paceline.families.training.api.own import LossError, OwnBatch, OwnModel, layers_of, scalar
from paceline.families.training.core.own.loading import Named
from paceline.families.training.core.own.setting import OwnWorkload
from paceline.families.training.core.proofs.oracle import learnt


def batch_of(content: Any, count: int = 4) -> OwnBatch:
    return OwnBatch(content=content, seeds=torch.arange(count))


def squared(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().mean()


class Adding(nn.Module):
    """Adds its inputs and a parameter; of a target it returns the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(2.0))

    def forward(self, a: Tensor, b: Tensor | None = None, target: Tensor | None = None) -> Any:
        output = a + self.weight + (0 if b is None else b)
        return output if target is None else {"loss": squared(output, target), "output": output}


ONES = torch.ones(4)


@pytest.mark.parametrize(
    ("content", "loss", "expected"),
    [
        ((ONES, 5 * ONES), squared, 4.0),  # (1 + 2 − 5)²
        ((ONES, ONES, 5 * ONES), squared, 1.0),
        ((ONES, ONES, 6 * ONES), None, 4.0),
        ({"a": ONES, "target": 4 * ONES}, None, 1.0),
        ({"a": ONES, "b": ONES}, lambda output, batch: squared(output, batch["a"]), 9.0),
        (ONES, lambda output, batch: squared(output, 2 * batch), 1.0),
    ],
)
def test_a_module_is_called_as_its_batches_say(
    content: Any, loss: Callable[[Any, Any], Any] | None, expected: float
) -> None:
    model = OwnModel(Adding(), loss, draws=False)
    assert loss_of(model, batch_of(content)).item() == expected


def test_a_loss_is_a_number_or_the_loss_of_an_output() -> None:
    assert float(scalar(torch.tensor([3.0]))) == 3.0
    assert float(scalar(SimpleNamespace(loss=torch.tensor(2.0)))) == 2.0
    assert float(scalar({"loss": torch.tensor(1.0)})) == 1.0


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (torch.zeros(4, 1), r"a tensor of shape \[4, 1\]"),
        (3.0, "an object of type float without a tensor 'loss'"),
        ({"logits": torch.zeros(1)}, "an object of type dict without a tensor 'loss'"),
        (None, "an object of type NoneType"),
    ],
)
def test_what_is_no_loss_is_named(found: Any, said: str) -> None:
    with pytest.raises(LossError, match=said):
        scalar(found)


def test_a_module_that_draws_draws_by_its_batch_and_leaves_others_generators_alone() -> None:
    model = OwnModel(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 1)), squared, draws=True)
    whole = OwnBatch(content=(torch.ones(4, 8), torch.zeros(4, 1)), seeds=torch.tensor([5, 9, 6, 10]))
    torch.manual_seed(1)
    first = loss_of(model, whole[[0, 2]]).item()
    after = torch.rand(1)
    assert loss_of(model, whole[[0, 2]]).item() == first
    assert loss_of(model, whole[[1, 3]]).item() != first
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), after)


def test_judged_modules_draw_nothing() -> None:
    model = OwnModel(nn.Sequential(nn.Linear(8, 1), nn.Dropout(0.5)), squared, draws=True).eval()
    batch = batch_of((torch.ones(4, 8), torch.zeros(4, 1)))
    assert loss_of(model, batch).item() == loss_of(model, batch).item()


def test_gradients_of_a_batch_are_left_in_the_users_parameters() -> None:
    inner = Adding()
    loss = loss_and_gradients(OwnModel(inner, squared, draws=False), batch_of((ONES, 5 * ONES)))
    assert (float(loss), float(inner.weight.grad or 0)) == (4.0, -4.0)


def test_layers_are_the_parts_of_the_largest_list_and_something_is_left_for_the_rest() -> None:
    block = [nn.Linear(4, 4) for _ in range(3)]
    inner = nn.ModuleDict({"stem": nn.Linear(2, 4), "blocks": nn.Sequential(block[0], nn.ReLU(), *block[1:])})
    assert layers_of(OwnModel(inner, None, draws=False)) == block
    assert layers_of(OwnModel(nn.Sequential(*block), None, draws=False)) == block[:-1]
    assert layers_of(OwnModel(nn.Linear(4, 4), None, draws=False)) == []


def test_parts_that_share_parameters_are_no_layers() -> None:
    one, other = nn.Linear(4, 4), nn.Linear(4, 4)
    other.weight = one.weight
    assert layers_of(OwnModel(nn.Sequential(one, other, nn.Linear(4, 4)), None, draws=False)) == []
    tied = nn.ModuleDict({"blocks": nn.ModuleList([one, nn.Linear(4, 4)]), "head": nn.Linear(4, 4)})
    tied["head"].weight = one.weight
    assert layers_of(OwnModel(tied, None, draws=False)) == []


@pytest.mark.parametrize(
    ("shape", "matrix"),
    [((), (1,)), ((5,), (5,)), ((4, 3), (4, 3)), ((8, 3, 2, 2), (8, 12)), ((1, 7, 3), (1, 21))],
)
def test_tensors_of_any_axes_are_vectors_or_matrices(shape: tuple[int, ...], matrix: tuple[int, ...]) -> None:
    assert as_matrix(shape) == matrix


def made(factory: Callable[..., Any], seed: int = 3) -> nn.Module:
    named = Named(key="model", text="net.py:make", object=factory, folder=Path("/suite"), files=Path("/none"))
    return OwnWorkload(model=named, loss=None, world_size=2).made(seed, {}, torch.device("cpu"))


def test_a_factory_draws_weights_from_the_seed_whether_it_takes_it_or_not() -> None:
    def plain() -> nn.Module:
        return nn.Linear(3, 3)

    def seeded(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return nn.Linear(3, 3)

    for factory in (plain, seeded):
        one, same, other = (next(made(factory, seed).parameters()) for seed in (3, 3, 4))
        assert torch.equal(one, same)
        assert not torch.equal(one, other)


def test_a_factory_is_told_the_suites_folder() -> None:
    told: list[Path] = []

    def factory(folder: Path) -> nn.Module:
        told.append(folder)
        return nn.Linear(1, 1)

    made(factory)
    assert told == [Path("/suite")]


@pytest.mark.parametrize(
    ("curve", "fell"),
    [
        ([2.0, 1.0], True),
        ([2.0, 1.999], False),
        ([-2.0, -5.0], True),
        ([-2.0, -1.0], False),
        ([0.0, -1.0], True),
    ],
)
def test_losses_below_zero_fall_too(curve: list[float], fell: bool) -> None:
    assert learnt(curve) is fell
