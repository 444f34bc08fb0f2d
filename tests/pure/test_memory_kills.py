"""Kills at a memory limit, by the counters of control groups of both versions."""

from pathlib import Path

import pytest

from ringbatch.engine.process.memory_kills import MemoryKills

LIMIT = 1 << 30


class Version:
    """Files of one version of control groups: a group without a limit in one that may have one.

    Args:
        root: the folder of ``proc`` and ``sys``.
        number: of the version.
    """

    def __init__(self, root: Path, number: int) -> None:
        self.number = number
        mounts = root / "sys/fs/cgroup" / ("memory" if number == 1 else "")
        self.outer, self.inner = mounts / "outer", mounts / "outer/inner"
        self.inner.mkdir(parents=True)
        (root / "proc/self").mkdir(parents=True)
        first = "4:memory" if number == 1 else "0:"
        (root / "proc/self/cgroup").write_text(f"{first}:/outer/inner\n")
        for folder in (self.outer, self.inner):
            self.count(folder, 0, 0)
            self.limit(folder, None)

    def limit(self, folder: Path, limit: int | None) -> None:
        if self.number == 1:
            (folder / "memory.limit_in_bytes").write_text(f"{limit or (1 << 63) - 4096}\n")
        else:
            (folder / "memory.max").write_text(f"{limit or 'max'}\n")

    def count(self, folder: Path, kills: int, hits: int) -> None:
        if self.number == 1:
            text = f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n"
            (folder / "memory.oom_control").write_text(text)
            (folder / "memory.failcnt").write_text(f"{hits}\n")
        else:
            text = f"low 0\nmax 9\noom {hits}\noom_kill {kills}\noom_group_kill 0\n"
            (folder / "memory.events").write_text(text)


@pytest.fixture(params=[1, 2])
def version(request: pytest.FixtureRequest, tmp_path: Path) -> Version:
    return Version(tmp_path, request.param)


def test_the_group_whose_limit_was_reached_is_named(version: Version, tmp_path: Path) -> None:
    version.limit(version.outer, LIMIT)
    kills = MemoryKills(tmp_path)
    version.count(version.inner, 1, 0)
    version.count(version.outer, 1, 1)
    words = kills.words()
    assert f"control group {version.outer} has reached its memory limit" in words
    assert f", {LIMIT} bytes)" in words
    assert "MemoryMax=" in words


def test_the_innermost_limit_that_was_reached_counts(version: Version, tmp_path: Path) -> None:
    version.limit(version.outer, 2 * LIMIT)
    version.limit(version.inner, LIMIT)
    kills = MemoryKills(tmp_path)
    version.count(version.inner, 1, 1)
    version.count(version.outer, 1, 1)
    assert f"control group {version.inner} " in kills.words()


def test_each_kill_explains_one_process(version: Version, tmp_path: Path) -> None:
    version.limit(version.inner, LIMIT)
    kills = MemoryKills(tmp_path)
    version.count(version.inner, 2, 1)
    assert [str(version.inner) in kills.words() for _ in range(3)] == [True, True, False]
    assert kills.words() == ""


def test_kills_of_before_explain_nothing(version: Version, tmp_path: Path) -> None:
    version.count(version.inner, 7, 7)
    assert MemoryKills(tmp_path).words() == ""


def test_a_kill_at_no_limit_of_the_own_groups_is_the_hosts(
    version: Version, tmp_path: Path
) -> None:
    version.limit(version.outer, LIMIT)
    kills = MemoryKills(tmp_path)
    version.count(version.inner, 1, 0)
    assert "the host has no memory left" in kills.words()


def test_a_host_without_counters_explains_nothing(tmp_path: Path) -> None:
    assert MemoryKills(tmp_path).words() == ""
