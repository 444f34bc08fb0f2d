"""Configuration files: where they lie, and which of them cannot be read."""

import os
from pathlib import Path

import pytest
from config_documents import model

from ringbatch.engine.config.document import (
    ConfigError,
    load,
    read,
)
from ringbatch.engine.config.paths import absence


def test_a_file_is_loaded_with_paths_beside_it(tmp_path: Path) -> None:
    (tmp_path / "model.py").touch()
    (tmp_path / "ringbatch.toml").write_text(model(""))
    assert load(tmp_path / "ringbatch.toml").models[0].path == (tmp_path / "model.py").resolve()


def test_a_path_is_absolute_where_the_file_is_named_relatively(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.py").touch()
    (tmp_path / "ringbatch.toml").write_text(model(""))
    monkeypatch.chdir(tmp_path)
    assert load(Path("ringbatch.toml")).models[0].path == (tmp_path / "model.py").resolve()


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    with pytest.raises(ConfigError) as caught:
        read(path)
    assert str(caught.value) == f"{path}: cannot be read: No such file or directory"


def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read(tmp_path)


INVALID = {
    "no-equals-sign": (b"[server]\nport 3", r"not valid TOML: .*\(at line 2, column 6\)"),
    "ends-too-soon": (b"[server]\nport = ", r"not valid TOML: .*\(at line 2, "),
    "open-bracket-at-the-end": (b"[server]\nx = [1,", r"\(at line 2, the end of the document\)"),
    "table-twice": (b"[server]\n[server]\n", r"not valid TOML: .*line 2"),
    "yaml": (
        b"server:\n  port: 80\n",
        r"line 1, column 7\): server:; a section begins with a line",
    ),
    "json": (b'{"server": {}}', r'line 1, column 1\): \{"server": \{\}\}; a section begins with'),
    "text-without-quotes": (
        b"a = 1\nb = c\n",
        r"column 5\): b = c; texts stand in straight quotes",
    ),
    "unit": (b"a = 1\nb = 60s\n", r": b = 60s; a number stands without its unit$"),
    "unit-apart": (b"b = 64 MiB\n", r": b = 64 MiB; a number stands without its unit$"),
    "key-twice": (b"a = 1\na = 2\n", r": a = 2; a key may stand once in its section$"),
    "section-twice": (b"[a]\n[b]\n[a]\n", r"line 3.*: \[a\]; a section may stand once$"),
    "backslash": (
        rb'a = "C:\models"',
        r"; in double quotes write \\\\ for \\, or put the text in ",
    ),
    "text-without-its-end": (b'a = "b\n', r"; a text ends on its line, with the quote that it "),
    "colon": (b"a: 1\n", r": a: 1; = stands between a key and its value$"),
    "a-long-line": (b"x = y" + b"z" * 500, r"column 5\): x = y" + "z" * 72 + r"\.\.\.; texts"),
    "line-not-to-be-shown": (b"a = \x1b[0m\n", r"column 5\)$"),
    "not-utf-8": (b"[server]\nhost = '\xff'", r"not UTF-8 text \(at line 2, column 9\)"),
    "nested-too-deep": (b"x = " + b"[" * 100_000, r"not valid TOML: "),
    "number-too-long": (b"x = " + b"9" * 5000, r"not valid TOML: "),
}


@pytest.mark.parametrize(("data", "words"), INVALID.values(), ids=INVALID)
def test_a_file_that_is_not_toml_is_refused_with_the_place(
    tmp_path: Path, data: bytes, words: str
) -> None:
    path = tmp_path / "ringbatch.toml"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=words) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize("data", [b"import numpy as np\n", b"\xff"])
def test_a_model_in_place_of_a_configuration_is_refused_with_the_way_to_give_it(
    tmp_path: Path, data: bytes
) -> None:
    path = tmp_path / "model.py"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"; if this is a model, give it without --config$"):
        read(path)


def test_the_mark_that_editors_of_windows_put_first_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "ringbatch.toml"
    path.write_text("a = 1\n", encoding="utf-8-sig", newline="\r\n")
    assert read(path) == {"a": 1}


def test_the_thing_found_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("gone.py")
    (tmp_path / "loop").symlink_to("loop")

    def found(name: str) -> str:
        return absence(tmp_path / name, name)

    assert found("directory") == f"; {tmp_path}/directory is a directory"
    assert found("file") == f"; {tmp_path}/file is a file"
    assert found("pipe") == f"; {tmp_path}/pipe is no ordinary file"
    assert found("link") == f"; the link {tmp_path}/link leads to gone.py, where none is"
    assert found("loop") == (
        f"; the link {tmp_path}/loop leads to loop, which cannot be looked at: Too many levels of "
        "symbolic links"
    )
    assert found("file/m") == f"; {tmp_path}/file/m cannot be looked at: Not a directory"
    assert found("none") == f"; none is at {tmp_path}/none"
    assert (
        found("~/none") == f"; none is at {tmp_path}/~/none, because ~ and $ stay as they are here"
    )
    assert absence(tmp_path / "none", f"{tmp_path}/none") == ""
