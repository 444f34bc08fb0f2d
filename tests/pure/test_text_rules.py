"""Configuration of text models."""

from pathlib import Path
from typing import Any

import pytest

from ringbatch.engine.config.document import ConfigError, conclude
from ringbatch.engine.config.settings import ModelConfig
from ringbatch.engine.config.text_rules import BATCH_TOKENS, BUCKETS


def concluded(folder: Path, **keys: Any) -> ModelConfig:
    (folder / "minilm").mkdir(exist_ok=True)
    models = {"m": {"path": "minilm", **keys}}
    (model,) = conclude({"models": models}, source="c.toml", base=folder).models
    return model


def test_a_directory_is_a_model_of_texts_padded_by_its_tokens(tmp_path: Path) -> None:
    model = concluded(tmp_path)
    assert (model.runtime, model.platform) == ("text", "text")
    assert model.path == tmp_path / "minilm"
    assert model.pad_variable_length
    assert model.padding_values == ("ids=-1",)
    assert (model.length_buckets, model.max_batch_elements) == (BUCKETS, BATCH_TOKENS)
    assert model.truncate


def test_buckets_and_the_budget_can_be_set(tmp_path: Path) -> None:
    model = concluded(tmp_path, length_buckets=[32, 64], max_batch_elements=0)
    assert (model.length_buckets, model.max_batch_elements) == ((32, 64), 0)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"padding_values": ["ids=0"]}, "padding_values: is not for texts, which are padded"),
        ({"lengths_input": "n"}, "lengths_input: is not for texts"),
        ({"max_batch_size": 0}, "max_batch_size: is 0, but a model of texts takes batches"),
        ({"device": "cuda:0", "columns": "matrix"}, "columns: is for the runtimes sklearn"),
        ({"path": "none", "runtime": "text"}, 'path: found "none", but it must be a directory'),
        (
            {"path": "there"},
            "or a directory with a tokenizer.json (text, or generator if it has a model.py or ",
        ),
    ],
)
def test_a_fault_is_described(tmp_path: Path, keys: dict[str, Any], words: str) -> None:
    (tmp_path / "there").touch()
    with pytest.raises(ConfigError) as caught:
        concluded(tmp_path, **keys)
    assert words in str(caught.value)


def test_truncate_is_for_texts_alone(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").touch()
    with pytest.raises(ConfigError, match="truncate: is for the runtime text, but"):
        concluded(tmp_path, path="m.onnx", truncate=False)
