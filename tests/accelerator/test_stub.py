"""The stub accelerator behaves as a device: it works behind the host's back, and what is wrong there is wrong on it.

Every test is a process of its own, which loads the stub as torch loads what a vendor installs. Where the host has to be
ahead of the device, the device sleeps for two seconds: longer than a busy machine keeps the host waiting.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

Python = Callable[..., str]


def test_the_host_goes_on_while_the_device_computes(python: Python) -> None:
    python("""
        a, b = (torch.randn(1024, 1024, device="stub") for _ in range(2))
        torch.mm(a, b)
        torch.accelerator.synchronize()
        torch.stub._sleep(2_000_000_000)
        found = torch.mm(a, b)
        done = torch.stub.Event()
        done.record()
        assert not done.query()
        torch.accelerator.synchronize()
        assert done.query()
        torch.testing.assert_close(found.cpu(), a.cpu() @ b.cpu())
    """)


def test_events_tell_the_time_of_the_device_and_not_of_launches(python: Python) -> None:
    python("""
        begin, end = (torch.stub.Event(enable_timing=True) for _ in range(2))
        begin.record()
        torch.stub._sleep(2_000_000_000)
        end.record()
        assert not end.query()
        try:
            begin.elapsed_time(end)
        except RuntimeError as error:
            assert "completed" in str(error)
        else:
            raise AssertionError("a time was told before there was one")
        end.synchronize()
        assert begin.elapsed_time(end) >= 2000.0
    """)


@pytest.mark.gate
@pytest.mark.timeout(180)
def test_who_reads_too_early_reads_poison(python: Python) -> None:
    python("""
        ones = torch.ones(1000, device="stub")
        torch.accelerator.synchronize()
        torch.stub._sleep(2_000_000_000)
        early = (ones * 2).to("cpu", non_blocking=True)
        assert early.isnan().all()
        torch.accelerator.synchronize()
        assert (early == 2).all()
        assert torch.empty(8, device="stub").isnan().all()
    """)


def test_what_another_stream_computes_has_to_be_waited_for(python: Python) -> None:
    python("""
        ones, side = torch.ones(1000, device="stub"), torch.stub.Stream()
        torch.accelerator.synchronize()
        with torch.stub.stream(side):
            torch.stub._sleep(2_000_000_000)
            doubled = ones * 2
        early = doubled.clone()
        torch.stub.current_stream().wait_stream(side)
        late = doubled.clone()
        assert early.isnan().all() and (late == 2).all()
    """)


def test_memory_that_another_stream_still_uses_is_lost_unless_it_is_told_of(python: Python) -> None:
    python("""
        side = torch.stub.Stream()
        for told in (True, False):
            tensor = torch.ones(1000, device="stub")
            torch.accelerator.synchronize()
            with torch.stub.stream(side):
                torch.stub._sleep(2_000_000_000)
                copy = tensor.clone()
            if told:
                tensor.record_stream(side)
            del tensor
            torch.accelerator.synchronize()
            assert bool((copy == 1).all()) is told
    """)


def test_memory_is_counted_and_ends(python: Python) -> None:
    python("""
        accelerator = torch.accelerator
        before = accelerator.memory_allocated()
        tensor = torch.zeros(1 << 20, device="stub")
        assert accelerator.memory_allocated() - before == 4 << 20
        accelerator.reset_peak_memory_stats()
        (tensor + 1) * 2
        assert accelerator.max_memory_allocated() - before == 12 << 20
        del tensor
        assert accelerator.memory_allocated() == before
        try:
            torch.empty(3 << 30, dtype=torch.uint8, device="stub")
        except torch.OutOfMemoryError as error:
            assert "out of memory" in str(error)
        else:
            raise AssertionError("more than the device has was allocated")
    """)


def test_devices_do_not_mix(python: Python) -> None:
    python("""
        here, there, host = torch.ones(2, 2, device="stub:0"), torch.ones(2, 2, device="stub:1"), torch.ones(2, 2)
        for other in (there, host):
            try:
                here @ other
            except RuntimeError as error:
                assert "same device" in str(error)
            else:
                raise AssertionError("tensors of two devices were multiplied")
        assert (here + there.to("stub:0")).device == torch.device("stub:0")
        torch.randn(2, device="stub", generator=torch.Generator("stub").manual_seed(1))
        try:
            torch.randn(2, device="stub", generator=torch.Generator().manual_seed(1))
        except RuntimeError as error:
            assert "generator" in str(error)
    """)


def test_a_mistake_on_the_device_shows_at_the_next_wait_and_stays(python: Python) -> None:
    python("""
        table = torch.zeros(4, 4, device="stub")
        table.index_add_(0, torch.tensor([9], device="stub"), torch.ones(1, 4, device="stub"))
        for call in (torch.accelerator.synchronize, lambda: table + 1):
            try:
                call()
            except (RuntimeError, IndexError):
                continue
            raise AssertionError("nothing was wrong")
        import os
        os._exit(0)
    """)


def test_a_process_forked_from_one_that_used_it_cannot(python: Python) -> None:
    python("""
        import os
        torch.ones(1, device="stub")
        child = os.fork()
        if child == 0:
            try:
                torch.ones(1, device="stub")
            except RuntimeError as error:
                os._exit(0 if "forked subprocess" in str(error) else 2)
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """)


def test_a_process_that_only_imported_torch_may_fork(python: Python) -> None:
    python("""
        import os
        assert torch.accelerator.device_count() == 4 and not torch.stub.is_initialized()
        child = os.fork()
        if child == 0:
            os._exit(int(torch.ones(1, device="stub").item()) - 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """)


def test_a_network_learns_as_on_the_host(python: Python) -> None:
    printed = python("""
        from torch import nn

        def losses(device):
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4)).to(device)
            inputs, labels = torch.randn(8, 16).to(device), torch.arange(8).remainder(4).to(device)
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
            found = []
            for _ in range(5):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(inputs), labels)
                loss.backward()
                optimizer.step()
                found.append(loss.item())
            return torch.tensor(found)

        torch.testing.assert_close(losses("stub"), losses("cpu"))
        print(torch.ops.stub.synchronous_operators())
    """)
    # C++ tells the shapes of nearly all of it: the host waits for few operators.
    assert "mm" not in printed
    assert "gelu" not in printed
