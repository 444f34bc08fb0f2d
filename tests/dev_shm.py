"""Shares of /dev/shm: the engines of concurrent test processes never take more than there is.

A container has 64 MiB where nobody asks for more. The engines of one file's tests take up to `EACH`
bytes, or what the file says (`pytestmark = takes(mib)`). Files of several processes of a run whose
engines do not fit beside each other wait; one that never fits is skipped, and says so.
"""

import fcntl
import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

MARKER: Final = "dev_shm"
MIB: Final = 1 << 20
EACH: Final = 10 * MIB
_POLL_S: Final = 0.05
_ENGINES: Final = ("tests/serve/", "tests/process/", "tests/fuzz/", "tests/documents/", "bench/")
_TURN: Final = 1 << 30
"""Byte locked while a process takes shares, so that none waits with half of the shares it needs."""


def takes(mib: int) -> pytest.MarkDecorator:
    """Mark a file whose engines take more than `EACH` at once."""
    return pytest.mark.dev_shm(mib)


def free_bytes() -> int:
    """Return the free bytes of /dev/shm."""
    found = os.statvfs("/dev/shm")
    return found.f_bavail * found.f_frsize


def shares_of(wanted_bytes: int) -> int:
    """Return the number of shares of `EACH` bytes that hold so many bytes."""
    return -(-wanted_bytes // EACH)


class Shares:
    """Shares of the memory, of which each is a byte of a file that one process locks at a time.

    The kernel drops the locks of a process that ends.

    Args:
        file: the same for all processes of a run.
        bytes_: size of the memory.
    """

    def __init__(self, file: Path, bytes_: int) -> None:
        self.count = bytes_ // EACH
        self._fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._held: list[int] = []

    def take(self, wanted: int) -> bool:
        """Take so many shares at once; False if fewer are free."""
        fcntl.lockf(self._fd, fcntl.LOCK_EX, 1, _TURN)
        try:
            for share in range(self.count):
                if len(self._held) < wanted and self._lock(share):
                    self._held.append(share)
            if len(self._held) < wanted:
                self.leave()
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, _TURN)
        return len(self._held) == wanted

    def leave(self) -> None:
        """Release all shares that were taken."""
        for share in self._held:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, share)
        self._held.clear()

    def _lock(self, share: int) -> bool:
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, share)
        except OSError:
            return False
        return True


class Turns:
    """The plugin: each file takes its shares before its first test, and leaves them after its last.

    Args:
        shares: of this run.
    """

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._file = ""

    @classmethod
    def of(cls, config: pytest.Config) -> "Turns":
        """Return the turns for a run of pytest, or for one process of it."""
        folder = Path(config._tmp_path_factory.getbasetemp())  # type: ignore[attr-defined]
        shared = folder.parent if hasattr(config, "workerinput") else folder
        return cls(Shares(shared / "dev-shm", free_bytes()))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        """Around a test and the fixtures that end with it."""
        file = _file_of(item)
        wanted = _wanted(item)
        if file != self._file and wanted <= self._shares.count:
            while not self._shares.take(wanted):
                time.sleep(_POLL_S)
            self._file = file
        try:
            return (yield)
        finally:
            if nextitem is None or _file_of(nextitem) != file:
                self._shares.leave()
                self._file = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip what never fits."""
        if (wanted := _wanted(item)) > self._shares.count:
            had = self._shares.count * EACH // MIB
            pytest.skip(f"its engines take {wanted * EACH // MIB} MiB of /dev/shm, which has {had}")


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _wanted(item: pytest.Item) -> int:
    """Shares that the file of a test takes."""
    marker = item.get_closest_marker(MARKER)
    if marker is not None:
        return shares_of(marker.args[0] * MIB)
    return 1 if item.nodeid.startswith(_ENGINES) else 0
