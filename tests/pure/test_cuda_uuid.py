"""The UUID of a worker's device, as a played driver tells it."""

from ctypes import Array, c_int, c_ubyte
from typing import Any

import pytest
from played_nvml import UUID_A, UUID_B

from ringbatch.engine.devices.cuda_uuid import cuda_uuid


class Driver:
    """Driver with two devices; a step in `fails` returns an error."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.begun = False

    def cuInit(self, flags: int) -> int:
        self.begun = True
        return self._status("cuInit") or flags

    def cuDeviceGet(self, handle: Any, ordinal: int) -> int:
        assert self.begun
        handle._obj.value = 40 + ordinal
        return self._status("cuDeviceGet") or 101 * (ordinal > 1)

    def cuDeviceGetUuid_v2(self, uuid: Any, handle: c_int) -> int:
        found: Array[c_ubyte] = uuid._obj
        found[:] = [*{40: UUID_A, 41: UUID_B}.get(handle.value, 1).to_bytes(16, "big")]
        return self._status("cuDeviceGetUuid_v2")

    def _status(self, step: str) -> int:
        return 3 if step == self.fails else 0


@pytest.mark.parametrize(
    ("device", "uuid"), [("cuda:0", UUID_A), ("cuda:1", UUID_B), ("cuda:2", 0), ("cpu", 0)]
)
def test_a_device_has_the_uuid_that_the_driver_tells(device: str, uuid: int) -> None:
    def library(name: str) -> Driver:
        assert name == "libcuda.so.1"
        return Driver()

    assert cuda_uuid(device, library) == uuid


def test_for_the_cpu_no_library_is_loaded() -> None:
    def library(name: str) -> Driver:
        raise AssertionError(name)

    assert cuda_uuid("cpu", library) == 0


@pytest.mark.parametrize("step", ["cuInit", "cuDeviceGet", "cuDeviceGetUuid_v2"])
def test_where_a_step_fails_there_is_none(step: str) -> None:
    assert cuda_uuid("cuda:0", lambda _: Driver(step)) == 0


def test_where_the_driver_is_missing_or_too_old_there_is_none() -> None:
    def missing(name: str) -> Driver:
        raise OSError(f"{name}: cannot open shared object file")

    assert cuda_uuid("cuda:0", missing) == 0
    assert cuda_uuid("cuda:0", lambda _: object()) == 0
