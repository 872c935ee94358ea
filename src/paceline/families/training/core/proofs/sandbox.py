"""A technique's replica behind its fences: what it may do in a step, and what it must not when it is asked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from paceline.families.training.api.own import Batch, on_device
from paceline.families.training.api.replica import Replica, Share
from paceline.families.training.api.torch_parallel import local_part
from paceline.families.training.core.data.setting import Setting
from paceline.families.training.core.memory.transients import Transients
from paceline.families.training.core.planning.promises import Training
from paceline.families.training.core.proofs import oracle
from paceline.families.training.core.proofs.agreement import SHARED
from paceline.worker.ranks.session import Block, Case, ContractBreachError, Session

LIBRARIES = frozenset(f"paceline.baselines.training.{name}" for name in ("ddp", "fsdp", "dcp_async"))
"""Techniques that stand for PyTorch's own modules, which use the process group themselves."""
DIAGNOSES = ("loss_dispersion", "gradient_norm_dispersion", "gradient_cosine")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """A technique's replica, and what the harness lets it do."""

    session: Session
    replica: Replica
    library: bool
    diagnoses: bool
    compiles: bool = False
    """Whether a compiler may run in its proofs: its layers may meet shapes or wrappers that are new."""

    def watch(self, *, proving: bool = False, in_time: bool = False) -> AbstractContextManager[None]:
        """Return the fences for its code; in time they look at what a step rests on, and ``check`` at the rest."""
        building = proving and self.compiles
        return self.session.guard.watch(building=building, library=self.library, in_time=in_time)

    def weights(self) -> list[Tensor]:
        """Return the weights that it would ship.

        Raises:
            ContractBreachError: It sent something through the communicator, or changed its model, to answer.
        """
        comm, replica = self.replica.comm, self.replica
        # As bits: a technique that diverged holds NaN, which is unequal to itself.
        before = [_bits(p).clone() for p in replica.model.parameters()]
        # Asked for its weights between steps, a technique could exchange off the clock and ship what it never paid for.
        sent = sum(comm.counters.sent_messages) + comm.counters.backend_calls
        with self.watch():
            shares = replica.shares()
            found = [w.detach() for w in replica.weights()] if shares is None else []
        if sent != sum(comm.counters.sent_messages) + comm.counters.backend_calls:
            raise ContractBreachError("it sent messages when asked for its weights")
        after = map(_bits, replica.model.parameters())
        if not all(torch.equal(x, y) for x, y in zip(before, after, strict=True)):
            raise ContractBreachError("it changed its model when asked for its weights")
        # Told to all before anything is gathered: ranks that disagree would wait in different exchanges.
        answers = self.session.control.gather_text("whole" if shares is None else "shares")
        if len(set(answers)) > 1:
            raise ContractBreachError("some ranks have whole weights, others shares")
        if shares is None:
            return found
        common = self.session.control.gather_text(" ".join(map(str, self.replica.common)))
        if len(set(common)) > 1:
            raise ContractBreachError("ranks say different things of what all of them hold")
        return self._gathered(shares, frozenset(self.replica.common))

    def _gathered(self, shares: Sequence[Share], common: frozenset[int]) -> list[Tensor]:
        """Return whole weights from what each rank owns of them, gathered by the harness.

        Args:
            shares: This rank's. What several ranks hold is the same on all of them.
            common: Numbers of the parameters that every rank holds in whole: this rank's own are taken.

        Raises:
            ContractBreachError: Some element has no owner, or ranks hold different copies of it: their mean would be an
                exchange. Or a rank holds parameters in whole, which shares would hide from the comparison of replicas.
        """
        parameters = list(self.replica.model.parameters())

        def make() -> tuple[Tensor, Tensor]:
            whole = [torch.zeros(p.numel(), dtype=torch.float64) for p in parameters]
            # Counted by element, so that gaps and overlaps show: what nobody owns would be shipped as zero.
            owners = [torch.full((p.numel(),), float(i in common)) for i, p in enumerate(parameters)]
            for number, start, values in shares:
                whole[number][start : start + values.numel()] += values.detach().cpu()
                owners[number][start : start + values.numel()] += 1
            return torch.cat(whole), torch.cat(owners)

        # On all ranks or none: one whose shares do not fit must not leave the others waiting in the sum.
        vector, owned = self.session.on_all_ranks(make)
        self.session.control.sum_in_place(owned)
        if not bool((owned >= 1).all()):
            raise ContractBreachError("its ranks' shares leave gaps")
        own = {number for number, _, values in shares if values.numel() == parameters[number].numel()}
        # A rank could train whole replicas that part, and show a share of each as if they were one model.
        if any(p.untyped_storage().nbytes() for i, p in enumerate(parameters) if i not in own | common):
            raise ContractBreachError("it owns shares of parameters that it holds in whole")
        self.session.control.sum_in_place(vector)
        vector /= owned  # exact: float64 has room for the sum of as many equal float32 as there can be ranks
        ends = list(accumulate(p.numel() for p in parameters))
        found = [
            p.detach() if i in common else vector[e - p.numel() : e].view(p.shape).to(p)
            for i, (e, p) in enumerate(zip(ends, parameters, strict=True))
        ]
        alike = all(
            _alike(found[number].reshape(-1)[start : start + values.numel()], values.detach())
            for number, start, values in shares
        )
        # Compared with the mean: it equals every copy only if all copies are equal.
        if self.session.control.first_problem(None if alike else "other") is not None:
            raise ContractBreachError("its ranks hold different copies of what they share")
        return found

    def step(
        self,
        sequences_BS: Batch,
        step: int,
        *,
        counted: Transients | None = None,
        digests: list[str] | None = None,
    ) -> None:
        """Run one step without a clock.

        Args:
            sequences_BS: What this rank reads.
            step: Its number.
            counted: Counts what the step makes.
            digests: Takes the digest of the weights at which gradients were taken.
        """
        replica = self.replica
        if counted is not None:
            counted.look_at(local_part(p).untyped_storage() for p in replica.model.parameters())
        with self.watch(proving=True), counted or nullcontext():
            replica.comm.begin_call()
            replica.set_rate(replica.task.rate(step))
            replica.forward_backward(on_device(sequences_BS, replica.task.device))
            if digests is not None:
                # Here, where gradients were just taken: what a forward synchronises
                # belongs to the round that ended before it.
                digests.append(self._digest())
            replica.exchange_gradients(step)
            replica.update(step)
            replica.exchange_parameters(step)
            self.diagnosis()

    def digest(self) -> str:
        """Return a digest of this rank's own model as it trains on, whatever it would ship."""
        with self.watch():
            return self._digest()

    def _digest(self) -> str:
        parameters = list(self.replica.model.parameters())
        # No rank has a whole model, so there is nothing to compare between ranks.
        if self.replica.shares() is not None or any(local_part(p) is not p for p in parameters):
            return SHARED
        return oracle.digest(parameters)

    def diagnosis(self) -> dict[str, float]:
        """Return what a technique that says so finds out about ranks; call it inside ``watch``, on the clock.

        Raises:
            ContractBreachError: It gives other figures than it should, or one that is not finite.
        """
        if not self.diagnoses:
            return {}
        found = {name: float(value) for name, value in self.replica.diagnosis().items()}
        if set(found) != set(DIAGNOSES) or not all(map(math.isfinite, found.values())):
            raise ContractBreachError(
                f"diagnosis gives {found}, and not finite figures of {', '.join(DIAGNOSES)}"
            )
        return found

    def finish(self) -> None:
        """Complete what is under way, and make sure that nothing is."""
        with self.watch():
            self.replica.finish()
        self.check_left()

    def check_left(self) -> None:
        """Look for what a technique left behind.

        Raises:
            ContractBreachError: Transfers, which the next technique would receive.
        """
        comm = self.replica.comm
        if comm.num_pending:
            raise ContractBreachError("transfers were still in flight when training had ended")
        counts = comm.counters
        rows = self.session.control.gather(
            [list(map(float, counts.sent_bytes)), list(map(float, counts.received_bytes))]
        )
        size = range(len(rows))
        # Every byte that i sent to j must have been received: a message left over would be the next technique's first.
        if any(rows[i][0][j] != rows[j][1][i] for i in size for j in size):
            raise ContractBreachError("what ranks sent and what they received does not fit")


def _bits(parameter: Tensor) -> Tensor:
    """Return this rank's part of a parameter as bytes: NaN equals itself there; nothing where its storage is freed."""
    part = local_part(parameter).detach()
    if part.numel() and not part.untyped_storage().nbytes():
        return torch.empty(0, dtype=torch.uint8)
    return part.contiguous().reshape(-1).view(torch.uint8)


def _alike(left: Tensor, right: Tensor) -> bool:
    """Tell whether values are equal; NaN, which a run that diverged has, is like itself."""
    return bool(((left == right) | (left.isnan() & right.isnan())).all())


def make_sandbox(session: Session, block: Block, case: Case, setting: Setting) -> Sandbox:
    """Make a technique, on all ranks or on none.

    Raises:
        CaseError: It does not support the point, broke its contract, or failed, on some rank.
    """
    library = case.module in LIBRARIES

    def make() -> Sandbox:
        task = setting.furnished(session, setting.task(rank=session.rank, world_size=session.world_size))
        loaded = session.loaded(case)
        # Libraries build groups, threads and hooks in their constructors, which others may not.
        with session.guard.watch(building=library, library=library):
            replica = loaded.factory(task, session.comm(), **case.options)
        if not isinstance(replica, Replica):
            raise ContractBreachError("it is no Replica (paceline.families.training.api.replica)")
        # After the constructor: what it may not know when it lays out its state, such as the run's routes.
        setting.unlock(replica)
        assert loaded.info is not None
        diagnoses = loaded.info.promised(Training).diagnoses
        return Sandbox(
            session=session,
            replica=replica,
            library=library,
            diagnoses=diagnoses,
            compiles=setting.compiled,
        )

    return session.on_all_ranks(make)
