"""Messages in the words of the door through which their reader came."""

import argparse
import shlex
import sys
from types import ModuleType
from typing import Any, NoReturn

import pytest
from command_harness import ONE, Files
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.command import cli, setting_spelling
from ringbatch.engine.command.setting_spelling import ALL_FLAGS, attribute_of, in_flags
from ringbatch.engine.config.definitions import Setting, settings
from ringbatch.engine.config.problems import in_toml
from ringbatch.engine.config.settings import ModelConfig, ServerConfig
from ringbatch.shm.errors import StartupError

SETTINGS = settings(ServerConfig) | settings(ModelConfig)
TYPED = [one for key, one in SETTINGS.items() if key != "path"]
PICKLE = (
    "/m/a.joblib: a pickle runs code; if you trust it, set trust_pickle = true, or raise "
    "[server] port, max_batch_size or threads = 2"
)
WORDS = st.just("-x") | st.text(alphabet="abcXYZ019 .:/_=-[],%", min_size=1, max_size=12)


def values(setting: Setting) -> st.SearchStrategy[Any]:
    if not setting.kind.metavar:
        return st.booleans()
    if setting.kind.spelled:
        return st.integers(1, 99) | st.lists(st.integers(0, 99), min_size=2, max_size=2)
    one = st.integers(0, 10**6) | st.floats(0, 1e6) if setting.kind.numeric else WORDS
    return st.lists(one, min_size=1, max_size=3) if setting.kind.several else one


@given(st.data())
def test_a_message_about_a_file_can_be_typed_as_flags(data: Any) -> None:
    setting = data.draw(st.sampled_from(TYPED))
    value = data.draw(values(setting))
    text = in_flags(f"set {setting.key} = {in_toml(value)}", ALL_FLAGS)
    verb, *typed = shlex.split(text)
    given_ = cli._parser().parse_args(["serve", *typed])
    assert verb == "set"
    assert getattr(given_, attribute_of(setting.key)) == value


def test_the_door_decides(files: Files) -> None:
    file = str(files(ONE))

    def hint(*argv: str) -> str:
        return setting_spelling.words_for(cli._parser().parse_args(argv))(PICKLE).partition("set ")[
            2
        ]

    as_file = "trust_pickle = true, or raise [server] port, max_batch_size or threads = 2"
    flags = "--trust-pickle, or raise --port, --max-batch-size or --threads 2"
    for command in ("serve", "check", "doctor", "handover"):
        assert hint(command, "model.py") == flags
        assert hint(command, "--config", file) == as_file
        mixed = "trust_pickle = true, or raise --port, max_batch_size or threads = 2"
        assert hint(command, "--config", file, "--port", "0") == mixed
    agents = "trust_pickle = true, or raise --port, --max-batchsize or threads = 2"
    assert hint("sidecar") == agents
    for command in ("status", "reload", "units"):
        assert hint(command) == as_file


def test_words_that_only_look_like_a_setting_stay_as_they_are() -> None:
    for text in (
        "/srv/max_batch_size.onnx: no such file",
        "max_batch_size.onnx: no such file",
        "frontends and workers take turns",
        "a port is in use",
        'found "max_batch_size"',
        "--max-batch-size: found 1",
        "my_max_batch_size = 1",
        "\n    import max_batch_size",
    ):
        assert in_flags(text, ALL_FLAGS) == text


@pytest.mark.parametrize("setting", TYPED, ids=lambda setting: setting.key)
def test_nothing_in_the_help_of_a_flag_is_as_a_file_has_it(setting: Setting) -> None:
    words = [in_flags(setting.sentence, ALL_FLAGS, about=setting.key)]
    words.append(in_flags(f"{ALL_FLAGS[setting.key]}: {setting.kind.words}", ALL_FLAGS))
    for text in words:
        assert " = " not in text
        assert '["' not in text
        assert "[server]" not in text
        assert "[1" not in text


def test_the_end_of_an_error_to_be_copied_stands_there_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: Any) -> NoReturn:
        raise StartupError("set trust_pickle = true:\n\n    x = 1\n        trust_pickle = true")

    stand_in = ModuleType("run")
    setattr(stand_in, "run", run)  # noqa: B010
    monkeypatch.setitem(sys.modules, "ringbatch.engine.supervisor.run", stand_in)
    assert cli.main(["serve"]) == 2
    hint = "ringbatch: set --trust-pickle:\n\nx = 1\n    trust_pickle = true\n"
    assert capsys.readouterr().err == hint


def test_arguments_that_set_nothing_leave_a_message_as_it_is() -> None:
    assert setting_spelling.words_for(argparse.Namespace())(PICKLE) == PICKLE
