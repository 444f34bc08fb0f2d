"""Directories of models of texts: what is read from them, the vectors that come out, and the words
that bad ones get.

Tests engine/runtimes/texts/directory.py.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from text_models import (
    CONFIG,
    DIMS,
    LIMIT,
    VOCABULARY,
    WORDS,
    token_vectors,
    tokens,
    vectors,
    write_directory,
    write_json,
)

from ringbatch.engine.models.model import Model, Options
from ringbatch.engine.runtimes.opening import open_model
from ringbatch.shm.errors import StartupError
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.texts import FILLER, IDS, QUERY, SECOND, TEXT

TEXTS = ("the cat", "the dog ran far away " * 4, "mat", "home sat on the mat")


def opened(folder: Path, **more: Any) -> Model:
    return open_model("text", folder, Options(max_batch_size=8, threads=1, **more))


def refused(folder: Path) -> str:
    with pytest.raises(StartupError) as caught:
        opened(folder)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(str(folder))
    return text.removeprefix(str(folder)).removeprefix(": ")


def padded(*rows: list[int], width: int = 0) -> NDArray[np.int32]:
    """Tokens as they stand in slots, each row behind its end filled to that width at least."""
    longest = max(width, *map(len, rows))
    return np.array([row + [FILLER] * (longest - len(row)) for row in rows], np.int32)


def test_a_directory_gives_tensors_and_tokenizer(tmp_path: Path) -> None:
    model = opened(write_directory(tmp_path / "m"), truncate=False)
    assert model.inputs == (IDS,)
    assert model.outputs == (Tensor("embedding", "FP32", [DIMS]),)
    found = model.tokens
    assert found is not None
    assert found.inputs == (TEXT,)
    assert found.path == str(tmp_path / "m" / "tokenizer.json")
    assert (found.limit, found.truncate, found.pairs) == (LIMIT, False, False)
    assert found.vocabulary == len(VOCABULARY)


@pytest.mark.parametrize("width", [0, 32, 100])
def test_vectors_are_those_of_each_text_alone_at_any_padding(tmp_path: Path, width: int) -> None:
    folder = write_directory(tmp_path / "m")
    found = opened(folder).predict(padded(*tokens(*TEXTS), width=width))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, vectors(folder, *TEXTS), atol=1e-6)


POOLED: dict[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]] = {
    "mean_tokens": lambda token_rows: token_rows.mean(axis=0),
    "cls_token": lambda token_rows: token_rows[0],
    "max_tokens": lambda token_rows: token_rows.max(axis=0),
    "lasttoken": lambda token_rows: token_rows[-1],
    "mean_sqrt_len_tokens": lambda token_rows: token_rows.sum(axis=0) / len(token_rows) ** 0.5,
}


@pytest.mark.parametrize("pooling", POOLED)
def test_tokens_are_pooled_as_the_directory_says(tmp_path: Path, pooling: str) -> None:
    folder = write_directory(tmp_path / "m", pooling=pooling, normalize=False)
    found = opened(folder).predict(padded(*tokens(*TEXTS)))
    expected = [POOLED[pooling](token_rows) for token_rows in token_vectors(folder, *TEXTS)]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_an_encoder_may_be_openvino_s(tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    folder = write_directory(tmp_path / "m")
    converted = openvino.convert_model(folder / "model.onnx")
    openvino.save_model(converted, folder / "openvino_model.xml", compress_to_fp16=False)
    expected = vectors(folder, *TEXTS)
    (folder / "model.onnx").unlink()
    found = opened(folder).predict(padded(*tokens(*TEXTS), width=40))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_without_a_word_on_pooling_it_is_the_mean(tmp_path: Path) -> None:
    folder = write_directory(tmp_path / "m", pooling=None)
    found = opened(folder).predict(padded(*tokens(*TEXTS)))
    expected = [token_rows.mean(axis=0) for token_rows in token_vectors(folder, *TEXTS)]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_classifier_of_one_label_takes_pairs_and_gives_scores(tmp_path: Path) -> None:
    folder = write_directory(tmp_path / "m", labels=1)
    model = opened(folder)
    assert model.tokens is not None
    assert model.tokens.inputs == (QUERY, TEXT)
    assert model.outputs == (Tensor("score", "FP32", []),)
    pairs = [("the cat", "sat on the mat"), ("dog", "home")]
    rows = [
        [id_ | SECOND if place > ids.index(3) else id_ for place, id_ in enumerate(ids)]
        for ids in tokens(*pairs)
    ]
    expected = [token_rows[0] for token_rows in token_vectors(folder, *pairs)]
    np.testing.assert_allclose(model.predict(padded(*rows)), expected, atol=1e-5)


def test_a_classifier_of_several_labels_takes_texts_and_names_them(tmp_path: Path) -> None:
    folder = write_directory(tmp_path / "m", labels=3)
    model = opened(folder)
    assert model.outputs == (Tensor("logits", "FP32", [3], ("label-0", "label-1", "label-2")),)
    found = model.predict(padded(*tokens(*TEXTS)))
    np.testing.assert_allclose(found, token_vectors(folder, *TEXTS), atol=1e-5)


def change(folder: Path, name: str, **members: Any) -> None:
    path = folder / name
    found = json.loads(path.read_text()) if path.is_file() else {}
    write_json(path, found | members)


def remove(folder: Path, name: str) -> None:
    (folder / name).unlink()


def add_module(folder: Path, kind: str) -> None:
    path = folder / "modules.json"
    module = {"idx": 3, "path": "3", "type": f"sentence_transformers.models.{kind}"}
    write_json(path, [*json.loads(path.read_text()), module])


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no-encoder": (lambda f: remove(f, "model.onnx"), "there is a tokenizer.json, but no encoder"),
    "no-tokenizer": (
        lambda f: remove(f, "tokenizer.json"),
        "there is an encoder, model.onnx, but no tokenizer.json",
    ),
    "tokenizer-of-another-format": (
        lambda f: write_json(f / "tokenizer.json", {"version": "9.0", "model": {"type": "New"}}),
        "/tokenizer.json: tokenizers ",
    ),
    "tokenizer-of-another-model": (
        lambda f: change(f, "config.json", vocab_size=5),
        "/tokenizer.json: has 14 tokens, but the encoder knows 5",
    ),
    "module-that-is-not-known": (
        lambda f: add_module(f, "Dense"),
        "/modules.json: has the module 'Dense', which is not known",
    ),
    "pooling-that-is-not-known": (
        lambda f: write_json(f / "1_Pooling" / "config.json", {"pooling_mode_weird": True}),
        "/1_Pooling/config.json: the pooling is weird; it must be one of cls,",
    ),
    "two-poolings": (
        lambda f: change(f, "1_Pooling/config.json", pooling_mode_cls_token=True),
        "/1_Pooling/config.json: the pooling is mean and cls; it must be one of",
    ),
    "config-that-is-no-json": (
        lambda f: (f / "config.json").write_text("{"),
        "/config.json: cannot be read as JSON: ",
    ),
    "encoder-that-is-none": (
        lambda f: (f / "model.onnx").write_bytes(b"no"),
        "/model.onnx: onnxruntime cannot load it",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_directory_that_is_none_is_refused_in_words(tmp_path: Path, case: str) -> None:
    folder = write_directory(tmp_path / "m")
    spoil, words = REFUSED[case]
    spoil(folder)
    assert refused(folder).startswith(words)


def test_a_directory_of_something_else_is_refused_with_the_path_of_its_model(
    tmp_path: Path,
) -> None:
    (tmp_path / "m").mkdir()
    assert refused(tmp_path / "m").endswith("; a model file is served by its own path")
    (tmp_path / "m/__init__.py").touch()
    words = refused(tmp_path / "m")
    assert "there is neither a tokenizer.json nor an encoder" in words
    assert words.endswith(f"; a model file is served by its own path, {tmp_path}/m/__init__.py")


def test_weights_alone_are_refused_with_the_exporters_name(tmp_path: Path) -> None:
    folder = write_directory(tmp_path / "m")
    (folder / "model.onnx").rename(folder / "model.safetensors")
    assert "model.safetensors has weights alone, which optimum exports" in refused(folder)


def test_an_encoder_that_takes_something_else_is_refused(tmp_path: Path) -> None:
    from model_files import linear_onnx

    folder = write_directory(tmp_path / "m")
    (folder / "model.onnx").write_bytes(linear_onnx())
    assert refused(folder).startswith(
        "/model.onnx: takes 'x', FP32 [-1, 3]; an encoder of texts takes input_ids, "
    )


def test_without_tokenizers_the_refusal_has_the_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_directory(tmp_path / "m")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert "pip install 'ringbatch[text]'" in refused(folder)


@pytest.mark.parametrize(
    ("sentence_config", "limit"),
    [
        ({"max_seq_length": 9}, 9),
        ({}, CONFIG["max_position_embeddings"]),
        ({"max_seq_length": 1e30}, CONFIG["max_position_embeddings"]),
    ],
)
def test_the_least_length_that_anything_says_is_the_limit(
    tmp_path: Path, sentence_config: dict[str, Any], limit: int
) -> None:
    folder = write_directory(tmp_path / "m")
    write_json(folder / "sentence_bert_config.json", sentence_config)
    tokens_of = opened(folder).tokens
    assert tokens_of is not None
    assert tokens_of.limit == limit


def test_positions_that_begin_behind_padding_are_fewer(tmp_path: Path) -> None:
    folder = write_directory(tmp_path / "m")
    write_json(folder / "sentence_bert_config.json", {})
    change(folder, "config.json", model_type="xlm-roberta", pad_token_id=1)
    tokens_of = opened(folder).tokens
    assert tokens_of is not None
    assert tokens_of.limit == CONFIG["max_position_embeddings"] - 2


def test_words_are_as_many_tokens() -> None:
    assert [len(ids) for ids in tokens(*WORDS)] == [3] * len(WORDS)
