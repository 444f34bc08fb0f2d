"""Clients' memory as frontends read and write it, and what clients may not do with it.

Two frontends are two `Regions` on one registry; a folder stands for /dev/shm.
"""

import asyncio
import errno
import gc
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from open_files import open_files
from segment_fixture import local_segment, spec

from ringbatch.frontend.codec.outcome import NotSupported
from ringbatch.frontend.v2.regions import NOTHING_SHARED, Regions, SharedMemory, patiently
from ringbatch.frontend.v2.shared_memory import RegionSpan
from ringbatch.shm.errors import (
    InvalidRequest,
    MemoryNotFound,
    Overloaded,
    RegionTaken,
    RequestError,
    RequestTooLarge,
)
from ringbatch.shm.layout import MAX_REGIONS
from ringbatch.shm.region import Region, encode
from ringbatch.shm.region_registry import Registry, RegistryBusy
from ringbatch.shm.region_words import RegistryWords
from ringbatch.shm.shm_objects import DIRECTORY

DATA = bytes(range(64))
ALLOWED = SharedMemory(("/app_",), 4096)
NOBODY = 65534
REFUSAL = 'there is no shared memory object "{}" that this server could open'


@pytest.fixture
def registry() -> Registry:
    return Registry.attach(local_segment(spec()))


@pytest.fixture
def frontends(registry: Registry, tmp_path: Path) -> Iterator[tuple[Regions, Regions]]:
    """Two frontends that share a registry; an object of 64 bytes is there."""
    (tmp_path / "app_x").write_bytes(DATA)
    both = Regions(registry, ALLOWED, tmp_path), Regions(registry, ALLOWED, tmp_path)
    before = objects_open()
    yield both
    for regions in both:
        regions.close()
    if objects_open() != before:
        gc.collect()  # what errors still hold
    assert objects_open() == before


@pytest.fixture
def regions(frontends: tuple[Regions, Regions]) -> Regions:
    return frontends[0]


def objects_open() -> int:
    """The descriptors of objects, whose names begin so; other tests' threads open other files."""
    return sum("/app_" in target for target in open_files(os.getpid()).values())


def read(regions: Regions, offset: int = 0, size: int = 64, name: str = "r") -> bytes:
    return bytes(regions.source(RegionSpan(name, offset, size)).read())


def write(regions: Regions, data: bytes, offset: int = 0, name: str = "r") -> None:
    regions.target(RegionSpan(name, offset, len(data))).write([memoryview(data)])


def refused(kind: type[RequestError], function: Callable[..., Any], *given: Any) -> str:
    with pytest.raises(kind) as caught:
        function(*given)
    assert type(caught.value) is kind
    return str(caught.value)


def test_a_region_that_one_frontend_registers_is_used_by_every_frontend(
    frontends: tuple[Regions, Regions], tmp_path: Path
) -> None:
    one, other = frontends
    one.register("r", "/app_x", 0, 64)
    assert read(other) == read(one) == DATA
    write(other, b"1234", offset=8)
    assert (tmp_path / "app_x").read_bytes() == DATA[:8] + b"1234" + DATA[12:]
    (shown,) = other.status("r")
    assert shown == one.status(None)[0]
    assert shown[:4] == ("r", "/app_x", 0, 64)


def test_a_region_that_one_frontend_unregisters_is_used_by_no_frontend(
    frontends: tuple[Regions, Regions],
) -> None:
    one, other = frontends
    one.register("r", "app_x", 0, 64)
    assert read(other) == DATA
    other.unregister("r")
    for regions in frontends:
        assert refused(MemoryNotFound, read, regions) == 'no shared memory region "r" is registered'
        assert refused(MemoryNotFound, regions.status, "r")
        assert regions.status(None) == []
    one.unregister("r")


def test_a_name_means_the_region_that_has_it_now(
    frontends: tuple[Regions, Regions], tmp_path: Path
) -> None:
    one, other = frontends
    (tmp_path / "app_y").write_bytes(DATA[::-1])
    one.register("r", "/app_x", 0, 64)
    assert read(other) == DATA
    one.unregister("r")
    one.register("r", "/app_y", 0, 64)
    assert read(other) == read(one) == DATA[::-1]


def test_all_are_unregistered_at_once_and_let_go_by_each_frontend(
    frontends: tuple[Regions, Regions],
) -> None:
    one, other = frontends
    before = objects_open()
    for name in "abc":
        one.register(name, "/app_x", 0, 64)
        read(other, name=name)
    assert objects_open() == before + 6
    one.unregister(None)
    assert objects_open() == before + 3
    other.sweep()
    assert objects_open() == before


def test_a_region_may_be_any_stretch_of_its_object(regions: Regions, tmp_path: Path) -> None:
    regions.register("r", "/app_x", 5, 7)
    assert read(regions, 0, 7) == DATA[5:12]
    assert read(regions, 2, 3) == DATA[7:10]
    assert read(regions, 7, 0) == b""
    write(regions, b"", offset=7)
    write(regions, b"!", offset=6)
    assert (tmp_path / "app_x").read_bytes() == DATA[:11] + b"!" + DATA[12:]


@pytest.mark.parametrize(("offset", "size"), [(0, 8), (7, 1), (8, 0), (6, 2), (1 << 43, 1)])
def test_a_tensor_beyond_its_region_is_refused(regions: Regions, offset: int, size: int) -> None:
    regions.register("r", "/app_x", 5, 7)
    for use in (regions.source, regions.target):
        assert refused(InvalidRequest, use, RegionSpan("r", offset, size)) == (
            f'{size} bytes from offset {offset} are not within shared memory region "r", '
            "which has 7"
        )


@pytest.mark.parametrize(
    ("offset", "size"), [(0, 65), (1, 64), (64, 1), (1 << 44, 1), (0, 1 << 44), (65, 1)]
)
def test_a_region_beyond_its_object_is_refused(regions: Regions, offset: int, size: int) -> None:
    text = refused(InvalidRequest, regions.register, "r", "/app_x", offset, size)
    assert text.endswith('are not within the shared memory object "/app_x"')
    assert regions.status(None) == []


@pytest.mark.parametrize(
    ("offset", "size"), [(-1, 8), (0, -8), (0, 0), (0, (1 << 64) - 1), ((1 << 64) - 1, 8)]
)
def test_impossible_numbers_are_refused(regions: Regions, offset: int, size: int) -> None:
    assert "not a whole number" in refused(
        InvalidRequest, regions.register, "r", "/app_x", offset, size
    )


def test_a_name_is_taken_until_it_is_given_back(frontends: tuple[Regions, Regions]) -> None:
    one, other = frontends
    one.register("r", "/app_x", 0, 64)
    before = objects_open()
    for regions in frontends:
        assert "registered already" in refused(RegionTaken, regions.register, "r", "/app_x", 0, 64)
    assert objects_open() == before
    other.unregister("r")
    other.register("r", "/app_x", 0, 64)


def test_the_table_of_regions_is_bounded(regions: Regions) -> None:
    for number in range(MAX_REGIONS):
        regions.register(str(number), "/app_x", 0, 64)
    before = objects_open()
    for number in range(MAX_REGIONS, 1000):
        text = refused(Overloaded, regions.register, str(number), "/app_x", 0, 64)
        assert "unregister some first" in text
    assert objects_open() == before
    regions.unregister("7")
    regions.register("new", "/app_x", 0, 64)
    regions.unregister(None)


@pytest.mark.parametrize("key", ["/other", "/ringbatch.1.2.3", "sem.ringbatch.1.2.3.c"])
def test_a_key_that_is_not_allowed_is_refused_whether_there_is_one_or_not(
    regions: Regions, tmp_path: Path, key: str
) -> None:
    absent = refused(InvalidRequest, regions.register, "r", key, 0, 8)
    (tmp_path / key.removeprefix("/")).write_bytes(DATA)
    assert refused(InvalidRequest, regions.register, "r", key, 0, 8) == absent
    assert "not one that clients of this server may use" in absent


def test_a_path_is_no_key(regions: Regions, tmp_path: Path) -> None:
    (tmp_path / "app_folder").mkdir()
    (tmp_path / "app_folder" / "x").write_bytes(DATA)
    for key in ("app_folder/x", "/app_folder/../app_x", "../app_x", "app_/../../etc/passwd"):
        text = refused(InvalidRequest, regions.register, "r", key, 0, 8)
        assert "is no name of a shared memory object" in text


def absent(_path: Path) -> None:
    pass


def a_link(path: Path) -> None:
    path.symlink_to(path.parent / "app_x")


def a_link_elsewhere(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def another_name(path: Path) -> None:
    path.hardlink_to(path.parent / "app_x")


def a_folder(path: Path) -> None:
    path.mkdir()


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        # The path may be too long for a socket's address.
        folder = os.open(path.parent, os.O_RDONLY)
        bound.bind(f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)


@pytest.mark.parametrize(
    "make", [absent, a_link, a_link_elsewhere, another_name, a_folder, a_pipe, a_socket]
)
def test_a_special_object_is_not_opened_and_not_waited_for(
    regions: Regions, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "app_odd")
    before = objects_open()
    text = refused(MemoryNotFound, regions.register, "r", "/app_odd", 0, 8)
    assert text == REFUSAL.format("/app_odd")
    assert objects_open() == before


@contextmanager
def without_rights() -> Iterator[None]:
    """Run a block as an ordinary user, because root may open everything."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_an_object_of_somebody_elses_is_as_good_as_absent(registry: Registry) -> None:
    name = f"rbtest_{os.getpid()}_theirs"
    theirs = DIRECTORY / name
    regions = Regions(registry, SharedMemory(("rbtest_",), 4096))
    theirs.write_bytes(DATA)
    try:
        theirs.chmod(0o666)
        with without_rights():
            regions.register("r", name, 0, 8)
        regions.unregister("r")
        theirs.chmod(0)
        with without_rights():
            text = refused(MemoryNotFound, regions.register, "r", name, 0, 8)
    finally:
        theirs.unlink()
    assert text == REFUSAL.format(name)


def test_where_nothing_more_can_be_opened_the_reason_is_another(
    regions: Regions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.EMFILE, "too many")

    monkeypatch.setattr(os, "open", full)
    text = refused(Overloaded, regions.register, "r", "/app_x", 0, 8)
    assert "too much open" in text


def test_an_object_made_shorter_is_an_error_and_no_more(
    frontends: tuple[Regions, Regions], tmp_path: Path
) -> None:
    one = frontends[0]
    one.register("r", "/app_x", 0, 64)
    known = one.source(RegionSpan("r", 0, 64)), one.target(RegionSpan("r", 0, 64))
    os.truncate(tmp_path / "app_x", 40)
    for regions in frontends:
        assert read(regions, 0, 40) == DATA[:40]
        for function in (read, lambda regions: write(regions, DATA)):
            text = refused(InvalidRequest, function, regions)
            assert text == (
                'the object of shared memory region "r" is no longer what was registered; '
                "register the region again"
            )
    assert "no longer" in refused(InvalidRequest, known[0].read)
    assert "no longer" in refused(InvalidRequest, known[1].write, [memoryview(DATA)])
    # Nor has it grown again.
    assert (tmp_path / "app_x").stat().st_size == 40


def test_an_object_that_shrinks_during_a_read_is_an_error(
    regions: Regions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    regions.register("r", "/app_x", 0, 64)
    preadv = os.preadv

    def shrinking(fd: int, views: Any, offset: int) -> int:
        os.ftruncate(fd, 10)
        return preadv(fd, views, offset)

    monkeypatch.setattr(os, "preadv", shrinking)
    assert "ended while it was read" in refused(InvalidRequest, read, regions)


def test_reads_and_writes_that_come_in_pieces_are_put_together(
    regions: Regions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preadv, pwrite = os.preadv, os.pwrite
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: preadv(fd, [views[0][:7]], at))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:5], at))
    regions.register("r", "/app_x", 1, 63)
    assert read(regions, 1, 62) == DATA[2:]
    target = regions.target(RegionSpan("r", 0, 30))
    target.write([memoryview(b"a" * 12), b"", memoryview(b"b" * 9)])
    assert (tmp_path / "app_x").read_bytes() == DATA[:1] + b"a" * 12 + b"b" * 9 + DATA[22:]


def test_a_write_that_the_object_has_no_memory_for_is_an_error(
    regions: Regions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    regions.register("r", "/app_x", 0, 64)
    assert "cannot be written: No space left" in refused(InvalidRequest, write, regions, DATA)


def removed(path: Path) -> None:
    path.unlink()


def replaced(path: Path) -> None:
    path.unlink()
    path.write_bytes(DATA)


def moved(path: Path) -> None:
    path.rename(path.with_name("app_moved"))
    path.write_bytes(DATA)


@pytest.mark.parametrize("change", [removed, replaced])
def test_all_frontends_agree_that_an_object_is_no_longer_there(
    frontends: tuple[Regions, Regions], tmp_path: Path, change: Callable[[Path], None]
) -> None:
    one, other = frontends
    one.register("r", "/app_x", 0, 64)
    change(tmp_path / "app_x")
    assert "register the region again" in refused(InvalidRequest, read, one)
    kind = MemoryNotFound if change is removed else InvalidRequest
    refused(kind, read, other)
    one.unregister("r")


def test_an_object_that_took_the_key_of_another_is_not_mistaken_for_it(
    frontends: tuple[Regions, Regions], tmp_path: Path
) -> None:
    one, other = frontends
    one.register("r", "/app_x", 0, 64)
    moved(tmp_path / "app_x")
    assert "no longer what was registered" in refused(InvalidRequest, read, other)


def test_a_record_that_a_hostile_process_wrote_opens_nothing(tmp_path: Path) -> None:
    segment = local_segment(spec())
    found = (tmp_path / "secret").write_bytes(DATA) and os.stat(tmp_path / "secret")
    assert isinstance(found, os.stat_result)
    hostile = Region("r", "/secret", 0, 64, found.st_dev, found.st_ino)
    first = segment.layout.registry_word + RegistryWords.SIZE
    for number, word in enumerate([1, *encode(hostile)], first):
        segment.words[number] = word
    regions = Regions(Registry.attach(segment), ALLOWED, tmp_path)
    assert "may use" in refused(InvalidRequest, read, regions)


def test_inputs_are_no_larger_than_a_request_may_be(regions: Regions) -> None:
    regions.register("r", "/app_x", 0, 64)
    span = RegionSpan("r", 0, 4097)
    assert "at most max_request_bytes = 4096 are accepted" in refused(
        RequestTooLarge, regions.source, span
    )
    refused(InvalidRequest, regions.target, span)


def test_a_request_on_its_way_keeps_its_regions(
    frontends: tuple[Regions, Regions], tmp_path: Path
) -> None:
    one, other = frontends
    one.register("r", "/app_x", 0, 64)
    target = one.target(RegionSpan("r", 0, 4))
    other.unregister("r")
    one.sweep()
    target.write([b"kept"])
    assert (tmp_path / "app_x").read_bytes() == b"kept" + DATA[4:]


def test_where_it_is_off_nothing_is_done(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "app_x").write_bytes(DATA)
    regions = Regions(registry, NOTHING_SHARED, tmp_path)
    assert not regions.on
    for call in (
        lambda: regions.register("r", "/app_x", 0, 64),
        lambda: regions.unregister(None),
        lambda: regions.status(None),
        lambda: regions.status("r"),
        lambda: regions.target(RegionSpan("r", 0, 1)),
        lambda: regions.source(RegionSpan("r", 0, 0)),
        regions.expect_on,
    ):
        assert "switched off here" in refused(NotSupported, call)


@pytest.mark.parametrize("name", ["", "n" * 256])
def test_a_region_has_a_name_that_can_be_recorded(regions: Regions, name: str) -> None:
    assert "the name of a" in refused(InvalidRequest, regions.register, name, "/app_x", 0, 8)


def test_registering_waits_its_turn_without_stopping_others() -> None:
    tries = iter([RegistryBusy, RegistryBusy, None])
    seen: list[str] = []

    def attempt() -> None:
        error = next(tries)
        seen.append("attempt")
        if error is not None:
            asyncio.get_running_loop().call_soon(seen.append, "another")
            raise error

    asyncio.run(patiently(attempt))
    assert seen == ["attempt", "another", "attempt", "another", "attempt"]


def test_registering_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringbatch.frontend.v2.regions._TRIES", 3)

    def attempt() -> None:
        raise RegistryBusy

    with pytest.raises(Overloaded, match="try again"):
        asyncio.run(patiently(attempt))
