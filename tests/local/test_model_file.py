"""Model file of a version: its contents stay, whatever becomes of the file at its path."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringbatch.engine.models import model_file
from ringbatch.engine.models.model_file import ModelFile
from ringbatch.engine.runtimes.python import import_model
from ringbatch.engine.supervisor.model_file_watch import ModelFileWatch
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host import background

OLD, NEW = b"old content", b"new content"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "m.bin"
    path.write_bytes(OLD)
    return path


def replace(path: Path, content: bytes = NEW) -> None:
    """Replace a file as a careful deployment does."""
    beside = path.with_name("beside")
    beside.write_bytes(content)
    beside.rename(path)


def write_over(path: Path, content: bytes = NEW) -> None:
    """Overwrite a file as an editor or `cp` does."""
    path.write_bytes(content)
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 1))


def remove(path: Path) -> None:
    path.unlink()


def lead_elsewhere(path: Path) -> None:
    """Make a link lead to another file, as `ln -sfn` does."""
    other = path.with_name("other")
    other.write_bytes(NEW)
    path.unlink()
    path.symlink_to(other)


CHANGES = pytest.mark.parametrize("change", [replace, write_over, remove])


def read(file: ModelFile, path: Path) -> bytes:
    """Return the contents that a worker started now reads."""
    return (file.kept().content(path) or path).read_bytes()


def test_while_the_file_lies_there_it_is_read_there(path: Path) -> None:
    file = ModelFile(path)
    assert file.kept().content(path) is None
    assert not file.differs()


@CHANGES
def test_a_small_file_is_served_after_any_change_of_it(
    path: Path, change: Callable[[Path], None]
) -> None:
    file = ModelFile(path)
    change(path)
    assert read(file, path) == OLD
    assert file.differs()


def test_a_file_with_the_longest_name_is_kept(tmp_path: Path) -> None:
    path = tmp_path / ("ä" * 120 + "-model.bin")
    path.write_bytes(OLD)
    file = ModelFile(path)
    replace(path)
    assert read(file, path) == OLD
    assert file.differs()


@pytest.mark.parametrize("change", [replace, remove])
def test_a_large_file_is_served_after_another_took_its_place(
    path: Path, change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_file, "COPIED_BYTES", len(OLD) - 1)
    file = ModelFile(path)
    change(path)
    assert read(file, path) == OLD
    assert file.differs()


def test_a_large_file_that_is_written_over_is_refused_in_words(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_file, "COPIED_BYTES", len(OLD) - 1)
    file = ModelFile(path)
    write_over(path)
    with pytest.raises(StartupError, match=r"m\.bin: was written over .* ringbatch reload"):
        read(file, path)
    assert file.differs()


@pytest.mark.parametrize("copied", [True, False])
def test_a_link_is_served_as_its_first_target(
    path: Path, monkeypatch: pytest.MonkeyPatch, copied: bool
) -> None:
    monkeypatch.setattr(model_file, "COPIED_BYTES", len(OLD) * copied)
    link = path.with_name("link.bin")
    link.symlink_to(path.name)
    file = ModelFile(link)
    assert not file.differs()
    lead_elsewhere(link)
    assert file.differs()
    assert read(file, link) == OLD


def test_a_large_file_is_copied_in_pieces(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_file, "_CHUNK_BYTES", 3)
    file = ModelFile(path)
    remove(path)
    assert read(file, path) == OLD


@pytest.mark.parametrize("change", [replace, write_over])
def test_the_same_content_written_again_is_no_other_file(
    path: Path, change: Callable[..., None]
) -> None:
    file = ModelFile(path)
    change(path, OLD)
    assert not file.differs()
    assert read(file, path) == OLD


def test_where_there_is_no_file_the_worker_says_so(tmp_path: Path) -> None:
    for missing in (tmp_path / "absent", tmp_path, "http://127.0.0.1:9"):
        file = ModelFile(missing)
        assert (file.fds, file.differs(), file.kept().content(missing)) == (
            (),
            False,
            None,
        )


def test_a_special_file_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "m.py"
    os.mkfifo(pipe)
    assert ModelFile(pipe).fds == ()
    plain = tmp_path / "n.py"
    plain.write_bytes(OLD)
    file = ModelFile(plain)
    pipe.rename(plain)
    assert file.differs()


def test_its_descriptor_goes_with_it(path: Path) -> None:
    file = ModelFile(path)
    (fd,) = file.fds
    os.fstat(fd)
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_no_child_of_a_model_inherits_it(path: Path) -> None:
    file = ModelFile(path)
    (fd,) = file.fds
    os.set_inheritable(fd, True)
    file.kept().keep_from_children()
    assert not os.get_inheritable(fd)


def test_a_model_file_runs_from_its_kept_copy(tmp_path: Path) -> None:
    (tmp_path / "beside_it.py").write_text("VALUE = 7\n")
    path = tmp_path / "m.py"
    path.write_text("import beside_it\ndef predict(x): return [beside_it.VALUE, __file__]\n")
    # Leaves what was compiled of the old text, which must not be taken for the other's.
    import_model(path)
    kept = ModelFile(path)
    path.write_text("def predict(x): return 'another'\n")
    content = kept.kept().content(path)
    assert import_model(path, content).predict([]) == [7, str(path)]
    assert import_model(path).predict([]) == "another"


def test_the_watch_reports_differing_files_until_that_is_known(
    path: Path, wait_until: Callable[..., Any]
) -> None:
    files = {3: ModelFile(path), 4: ModelFile(Path(__file__))}
    reported: set[int] = set()
    watch = ModelFileWatch(lambda: files, lambda: reported, every_s=0.001)

    def news() -> set[int] | None:
        try:
            return {*watch.take()}
        except BlockingIOError:
            return None

    try:
        replace(path)
        assert wait_until(lambda: news() == {3}, "the watch to tell")
        reported.add(3)
        replace(path, OLD)
        assert wait_until(lambda: news() == set(), "the watch to take it back")
    finally:
        watch.close(limit_s=60)


def test_the_watch_goes_on_after_a_look_that_failed(
    path: Path, wait_until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    def files() -> dict[int, ModelFile]:
        looks.append(1)
        if len(looks) == 1:
            raise MemoryError
        return {3: ModelFile(path)}

    monkeypatch.setattr(background, "AFTER_ERROR_S", 0.0)
    watch = ModelFileWatch(files, set, every_s=0.001)
    try:
        wait_until(lambda: len(looks) > 1, "another look")
    finally:
        watch.close(limit_s=60)


FILES = (
    *("model.onnx", "tokenizer.json", "1_Pooling/config.json"),
    *("model.py", "chat_template.jinja", "model.safetensors"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    (folder / "1_Pooling").mkdir(parents=True)
    for name in FILES:
        (folder / name).write_bytes(OLD)
    return folder


def test_a_directory_is_read_where_it_lies_as_long_as_it_is_the_same(folder: Path) -> None:
    file = ModelFile(folder)
    (folder / "README.md").write_bytes(NEW)
    assert file.kept().content(folder) is None
    assert file.fds == ()
    assert not file.differs()


@CHANGES
@pytest.mark.parametrize("name", FILES)
def test_a_directory_with_another_file_is_not_served_by_workers_that_come_later(
    folder: Path, name: str, change: Callable[[Path], None]
) -> None:
    file = ModelFile(folder)
    change(folder / name)
    assert file.differs()
    with pytest.raises(StartupError, match="a file in it is another by now"):
        file.kept().content(folder)
    assert not ModelFile(folder).differs()
