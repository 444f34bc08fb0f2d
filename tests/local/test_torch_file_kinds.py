"""Kinds of PyTorch files, told apart without torch."""

import io
import json
import sys
import zipfile
from pathlib import Path

import pytest

from ringbatch.engine.models.model import Options
from ringbatch.engine.runtimes.opening import open_model
from ringbatch.engine.runtimes.torch.file_kinds import TorchFile, kind_of
from ringbatch.shm.errors import StartupError

EXPORT = "save the model with torch.export.save (.pt2) or torch.jit.save (.pt)"


def archive(*names: str, **records: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name in names:
            made.writestr(f"model/{name}", "")
        for name, text in records.items():
            made.writestr(f"model/data/{name}/model_{name}_config.json", text)
    return file.getvalue()


def payload(**pickled: bool) -> str:
    return json.dumps({"config": {name: {"use_pickle": value} for name, value in pickled.items()}})


def kind(folder: Path, data: bytes, *, trust_pickle: bool = False) -> TorchFile:
    path = folder / "model.bin"
    path.write_bytes(data)
    return kind_of(path, trust_pickle=trust_pickle)


def refused(folder: Path, data: bytes) -> str:
    with pytest.raises(StartupError) as caught:
        kind(folder, data)
    text = str(caught.value)
    assert text.startswith(f"{folder / 'model.bin'}: ")
    assert "\n" not in text
    return text.removeprefix(f"{folder / 'model.bin'}: ")


def old_program() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("serialized_exported_program.json", "{}")
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (archive("archive_format", "models/model.json"), TorchFile.PROGRAM),
        (old_program(), TorchFile.PROGRAM),
        (archive("data.pkl", "constants.pkl", "code/__torch__.py"), TorchFile.SCRIPT),
    ],
    ids=["program", "program-of-torch-2.7", "script"],
)
def test_a_file_that_can_be_run_is_known_by_its_records(
    tmp_path: Path, data: bytes, expected: TorchFile
) -> None:
    assert kind(tmp_path, data) is expected


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (archive("data.pkl", "version"), "is a pickle, as torch.save writes it: "),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9", "is a pickle, as torch.save writes it: "),
        (archive("x"), "is a zip archive, but holds neither an exported program nor TorchScript; "),
        (b"no archive", "is neither an exported program nor TorchScript, or not all of one; "),
        (b"", "is neither an exported program nor TorchScript, or not all of one; "),
        (
            archive("archive_format", "data/aotinductor/model/cabc.so"),
            "holds machine code that AOTInductor has made; it is not read, so ",
        ),
    ],
    ids=["pickle", "old-pickle", "other-archive", "foreign", "empty", "machine-code"],
)
def test_any_other_file_is_refused_with_its_kind_and_a_remedy(
    tmp_path: Path, data: bytes, words: str
) -> None:
    text = refused(tmp_path, data)
    assert text.startswith(words)
    assert text.endswith(EXPORT)


@pytest.mark.parametrize("where", ["weights", "constants"])
def test_a_program_with_a_pickled_part_needs_trust(tmp_path: Path, where: str) -> None:
    data = archive("models/model.json", **{where: payload(plain=False, odd=True)})
    assert refused(tmp_path, data) == (
        "'odd' in it is a pickled Python object, which runs code while it is read; "
        "if you trust where the file comes from, set trust_pickle = true"
    )
    assert kind(tmp_path, data, trust_pickle=True) is TorchFile.PROGRAM
    plain = archive("models/model.json", **{where: payload(plain=False)})
    assert kind(tmp_path, plain) is TorchFile.PROGRAM


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"config": []}', '{"config": {"a": 1}}', '{"config": {"a": {}}}']
)
def test_a_list_of_parts_that_cannot_be_read_is_refused(tmp_path: Path, text: str) -> None:
    data = archive("models/model.json", weights=text)
    assert refused(tmp_path, data) == (
        "its record 'model/data/weights/model_weights_config.json' cannot be read"
    )


def test_a_missing_torch_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.pt2"
    path.write_bytes(archive("models/model.json"))
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(StartupError) as caught:
        open_model("torch", path, Options(max_batch_size=1, threads=1))
    assert str(caught.value) == (
        f"{path}: the runtime torch needs the module torch, which is not installed; "
        "pip install 'ringbatch[torch]', or in a clone '.[torch]'"
    )
