"""Memory cap of batches: how it is learned from failed runs, and forgotten."""

import pytest

from ringbatch.engine.worker.memory_cap import FIRST_PATIENCE, MemoryCap, ran_out_of_memory


def test_nothing_is_known_at_first() -> None:
    cap = MemoryCap()
    assert cap.rows is None
    assert cap.allows(1 << 13)
    assert not cap.fitted(1 << 13)


def test_a_size_that_ran_out_is_run_by_halves_from_then_on() -> None:
    cap = MemoryCap()
    cap.ran_out(32)
    assert (cap.rows, cap.allows(16), cap.allows(17)) == (16, True, False)
    cap.ran_out(10)
    assert cap.rows == 5


@pytest.mark.parametrize("rows", [2, 3])
def test_one_row_is_always_allowed(rows: int) -> None:
    cap = MemoryCap()
    cap.ran_out(rows)
    assert cap.rows == 1
    assert cap.allows(1)


@pytest.mark.parametrize(
    ("rows", "parts"),
    [
        ([], []),
        ([4, 4, 4], [[4], [4], [4]]),
        ([2, 2, 2], [[2, 2], [2]]),
        ([1, 9, 1], [[1], [9], [1]]),
        ([1, 1, 1, 1, 1], [[1, 1, 1, 1], [1]]),
    ],
)
def test_a_batch_is_run_in_parts_that_are_allowed(rows: list[int], parts: list[list[int]]) -> None:
    cap = MemoryCap()
    assert cap.parts(rows, rows) == ([rows] if rows else [])
    cap.ran_out(8)
    assert cap.parts(rows, rows) == parts


def full_runs(cap: MemoryCap, rows: int) -> int:
    """Return the number of runs of so many rows until the cap changes."""
    for count in range(1, 1 << 20):
        if cap.fitted(rows):
            return count
    raise AssertionError("it stays")


def test_after_many_full_runs_a_larger_one_is_tried() -> None:
    cap = MemoryCap()
    cap.ran_out(32)
    assert full_runs(cap, 16) == FIRST_PATIENCE
    assert cap.rows == 32


def test_runs_that_are_far_from_full_prove_nothing() -> None:
    cap = MemoryCap()
    cap.ran_out(32)
    assert not any(cap.fitted(8) for _ in range(10 * FIRST_PATIENCE))


def test_each_time_that_fails_it_is_tried_more_seldom() -> None:
    cap = MemoryCap()
    cap.ran_out(32)
    waited = []
    for _ in range(4):
        waited.append(full_runs(cap, 16))
        cap.ran_out(32)
        assert cap.rows == 16
    assert waited == [FIRST_PATIENCE << doubling for doubling in range(4)]


def test_where_nothing_fails_any_more_the_cap_goes() -> None:
    cap = MemoryCap()
    cap.ran_out(4)
    for _ in range(100):
        if cap.rows is None:
            return
        full_runs(cap, cap.rows)
    raise AssertionError(f"still {cap.rows}")


class OutOfMemoryError(RuntimeError):
    pass


OutOfMemoryError.__module__ = "torch.cuda"


class Fail(Exception):
    pass


Fail.__module__ = "onnxruntime.capi.onnxruntime_pybind11_state"

OUT_OF_MEMORY = {
    "python": MemoryError(),
    "numpy": type("_ArrayMemoryError", (MemoryError,), {})("Unable to allocate 8 GiB"),
    "torch-cuda": OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
    "torch-cpu": RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to ..."),
    "cublas": RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling ..."),
    "onnx": Fail("BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer"),
}
OTHER_FAILURES = {
    "another": RuntimeError("shapes do not match"),
    "of-onnx": Fail("Non-zero status code returned"),
    "a-clients-words": ValueError("cannot parse 'out of memory'"),
    "a-key": KeyError("out of memory"),
}


@pytest.mark.parametrize("error", OUT_OF_MEMORY.values(), ids=OUT_OF_MEMORY.keys())
def test_libraries_say_in_many_ways_that_memory_is_used_up(error: Exception) -> None:
    assert ran_out_of_memory(error)


@pytest.mark.parametrize("error", OTHER_FAILURES.values(), ids=OTHER_FAILURES.keys())
def test_an_error_that_a_client_may_have_caused_proves_nothing(error: Exception) -> None:
    assert not ran_out_of_memory(error)
