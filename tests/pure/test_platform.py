"""Tests shm/host/platform.py: which machines ringbatch runs on."""

import platform

import pytest

from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.platform import is_supported, require_supported_machine

WIDE, NARROW = (1 << 63) - 1, (1 << 31) - 1


@pytest.mark.parametrize("machine", ["x86_64", "AMD64", "aarch64", "arm64"])
def test_machines_whose_order_is_known_are_supported(machine: str) -> None:
    assert is_supported(machine, WIDE)
    require_supported_machine(machine, WIDE)


@pytest.mark.parametrize(
    ("machine", "largest", "found"),
    [
        ("riscv64", WIDE, "this machine is riscv64; "),
        ("aarch64_be", WIDE, "this machine is aarch64_be; "),
        ("armv7l", NARROW, "this machine is armv7l with a 32-bit Python; "),
        ("aarch64", NARROW, "this machine is aarch64 with a 32-bit Python; "),
        ("x86_64", NARROW, "this machine is x86_64 with a 32-bit Python; "),
        ("", WIDE, "this machine is of unknown kind; "),
    ],
)
def test_other_machines_are_refused_with_the_right_ones(
    machine: str, largest: int, found: str
) -> None:
    assert not is_supported(machine, largest)
    with pytest.raises(StartupError) as refused:
        require_supported_machine(machine, largest)
    assert str(refused.value).startswith(found)
    assert "ringbatch needs a 64-bit Python on x86-64 or AArch64" in str(refused.value)


def test_the_kernel_is_asked_for_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    require_supported_machine()
    monkeypatch.setattr(platform, "machine", lambda: "sparc64")
    with pytest.raises(StartupError, match="this machine is sparc64"):
        require_supported_machine()
