"""Words with an order, and fences: those of Python, and those of the C extension."""

import importlib.util
import shutil
import subprocess
import sysconfig
from array import array
from pathlib import Path
from types import ModuleType

import pytest
from sources import ROOT

from ringbatch.shm import memory_order


@pytest.fixture(scope="module", params=["Python", "C"])
def operations(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> object:
    """A module with `AcquiringWords`, `ReleasingWords` and the three fences."""
    if request.param == "Python":
        return memory_order
    return extension(tmp_path_factory.mktemp("built"))


def extension(folder: Path) -> ModuleType:
    """Build the C extension, with every warning an error, and import it."""
    headers = sysconfig.get_path("include")
    if shutil.which("gcc") is None or not Path(headers, "Python.h").exists():
        pytest.skip("there is no gcc with headers of Python")
    built = folder / "_memory_order.so"
    warnings = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-cast-function-type", "-Werror"]
    source = ROOT / "shm" / "_memory_order.c"
    command = [
        "gcc",
        "-O2",
        "-shared",
        "-fPIC",
        *warnings,
        f"-I{headers}",
        str(source),
        "-o",
        str(built),
    ]
    subprocess.run(command, check=True)
    spec = importlib.util.spec_from_file_location("_memory_order", built)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def words() -> memoryview:
    return memoryview(array("Q", [10, 11, 12, 1 << 63, 14]))


def test_a_word_is_loaded(operations: ModuleType, words: memoryview) -> None:
    loads = operations.AcquiringWords(words)
    assert [loads[0], loads[3], loads[-1]] == [10, 1 << 63, 14]
    words[0] = 20
    assert loads[0] == 20


@pytest.mark.parametrize("which", [slice(1, 4), slice(0, 5, 2), slice(4, 2), slice(None)])
def test_words_of_a_slice_are_copied(
    operations: ModuleType, words: memoryview, which: slice
) -> None:
    found = operations.AcquiringWords(words)[which]
    expected = words.tolist()[which]
    for number in range(len(words)):
        words[number] = 0
    assert found.tolist() == expected
    assert found == memoryview(array("Q", expected))


def test_a_word_is_stored(operations: ModuleType, words: memoryview) -> None:
    stores = operations.ReleasingWords(words)
    stores[1] = (1 << 64) - 1
    stores[-1] = True
    assert words.tolist() == [10, (1 << 64) - 1, 12, 1 << 63, 1]


@pytest.mark.parametrize("index", [5, -6, 1 << 70])
def test_a_word_that_is_not_there_is_neither_loaded_nor_stored(
    operations: ModuleType, words: memoryview, index: int
) -> None:
    with pytest.raises(IndexError):
        operations.AcquiringWords(words)[index]
    with pytest.raises(IndexError):
        operations.ReleasingWords(words)[index] = 1
    assert words.tolist() == [10, 11, 12, 1 << 63, 14]


@pytest.mark.parametrize("value", [-1, 1 << 64, 1.5, "1", None])
def test_a_value_that_is_no_word_is_not_stored(
    operations: ModuleType, words: memoryview, value: object
) -> None:
    with pytest.raises((OverflowError, TypeError, ValueError)):
        operations.ReleasingWords(words)[0] = value
    assert words[0] == 10


def test_words_that_are_read_only_are_not_stored_to(operations: ModuleType) -> None:
    words = memoryview(bytes(16)).cast("Q")
    assert operations.AcquiringWords(words)[1] == 0
    with pytest.raises(TypeError):
        operations.ReleasingWords(words)[1] = 1


def test_fences_return_nothing(operations: ModuleType) -> None:
    fences = operations.full_fence, operations.acquire_fence, operations.release_fence
    assert [fence() for fence in fences] == [None, None, None]


def test_the_extension_takes_only_aligned_words(tmp_path: Path) -> None:
    built = extension(tmp_path)
    for wrong in (b"12345678", memoryview(bytearray(17))[1:].cast("Q"), array("I", [1]), 5):
        with pytest.raises(TypeError):
            built.AcquiringWords(wrong)
    with pytest.raises(TypeError):
        built.AcquiringWords()
    made = built.AcquiringWords(memoryview(array("Q", [1])))
    with pytest.raises(TypeError):
        made.__init__(memoryview(array("Q", [2])))


def test_a_view_on_words_keeps_their_memory(operations: ModuleType) -> None:
    words = memoryview(array("Q", [7]))
    loads = operations.AcquiringWords(words)
    del words
    assert loads[0] == 7


def test_on_x86_the_words_themselves_have_the_order(words: memoryview) -> None:
    ordered = memory_order.acquiring(words), memory_order.releasing(words)
    assert all(one is words for one in ordered) == memory_order.KEEPS_ORDER


@pytest.mark.parametrize("has_atomics", [True, False])
@pytest.mark.parametrize("keeps_order", [True, False])
def test_the_cheapest_fences_that_suffice_are_taken(keeps_order: bool, has_atomics: bool) -> None:
    names = "full_fence", "acquire_fence", "release_fence"
    atomics = ModuleType("atomics")
    for name in names:
        setattr(atomics, name, name)
    found = memory_order._fences(atomics if has_atomics else None, keeps_order=keeps_order)
    by_lock = memory_order._fence_of_x86 if keeps_order else memory_order._fence_of_any
    none = memory_order._no_fence
    expected: dict[tuple[bool, bool], tuple[object, ...]] = {
        (True, True): ("full_fence", none, none),
        (True, False): (by_lock, none, none),
        (False, True): names,
        (False, False): (by_lock, by_lock, by_lock),
    }
    assert found == expected[keeps_order, has_atomics]


def test_a_lock_that_a_thread_of_the_parent_had_does_not_hold_up_a_child() -> None:
    memory_order._take()
    memory_order._let_go()
    assert not memory_order._LOCK.locked()
    memory_order._let_go()


@pytest.mark.parametrize("fence", [memory_order._fence_of_x86, memory_order._fence_of_any])
def test_a_fence_leaves_its_lock_as_it_was(fence: object) -> None:
    assert callable(fence)
    fence()
    assert not memory_order._LOCK.locked()
