"""Directories of text generators: what is read from them, and the words that bad ones get."""

import json
from pathlib import Path
from typing import Any

import pytest
from decoders import LIMIT as DECODER_LIMIT
from decoders import write_decoder
from model_files import linear_onnx
from text_generators import END, LIMIT, MODELS, tokenizer, write_generator

from ringbatch.engine.config.document import ConfigError, conclude
from ringbatch.engine.models.model import Model, Options
from ringbatch.engine.runtimes.opening import open_model
from ringbatch.engine.runtimes.texts.directory import DECODERS
from ringbatch.shm.errors import StartupError
from ringbatch.shm.texts import Generator


def opened(folder: Path) -> Model:
    return open_model("generator", folder, Options(max_batch_size=8, threads=1))


def generator_of(folder: Path) -> Generator:
    found = opened(folder).generator
    assert found is not None
    return found


def refused(folder: Path) -> str:
    with pytest.raises(StartupError) as caught:
        opened(folder)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(str(folder))
    return text


def write(folder: Path, name: str, value: Any) -> None:
    (folder / name).write_text(json.dumps(value))


def test_a_directory_gives_tensors_tokenizer_and_limits(tmp_path: Path) -> None:
    folder = write_generator(tmp_path / "m")
    model = opened(folder)
    assert model.in_steps
    assert [tensor.name for tensor in model.inputs][:2] == ["input_ids", "max_tokens"]
    found = generator_of(folder)
    size = tokenizer().get_vocab_size()
    assert (found.path, found.limit, found.vocabulary) == (str(folder), LIMIT, size)
    assert found.ends == (tokenizer().token_to_id(END),)


BY_NUMBERS = """
from ringbatch.engine import Tensor
inputs = [Tensor("input_ids", "INT64", [-1]), Tensor("max_tokens", "INT64", [])]
outputs = [Tensor("token", "INT64", [-1])]
def load(device, places): global size; size = places
def begin(input_ids, max_tokens, rows): pass
def step(rows): return rows, rows < size
def cost(input_ids, max_tokens): return len(input_ids) + int(max_tokens)
"""


def test_a_generator_may_keep_rows_in_arrays_and_declare_their_cost(tmp_path: Path) -> None:
    folder = write_generator(tmp_path / "m")
    (folder / "model.py").write_text(BY_NUMBERS)
    model = opened(folder)
    assert model.numbered
    assert model.steps is not None
    assert model.steps.places == 8
    assert model.steps.resumes == (("token", "input_ids"),)
    assert model.cost is not None
    assert model.cost([1, 2, 3], 4) == 7


def test_files_of_transformers_give_the_end_token_and_the_longest_text(tmp_path: Path) -> None:
    folder = write_generator(tmp_path / "m", eos_token={"content": END}, model_max_length=1e30)
    write(folder, "config.json", {"n_positions": 1024, "vocab_size": 512, "eos_token_id": 7})
    end = tokenizer().token_to_id(END)
    found = generator_of(folder)
    assert (found.limit, found.vocabulary, found.ends) == (1024, 512, (7, end))
    write(folder, "generation_config.json", {"eos_token_id": [5, end]})
    assert generator_of(folder).ends == (5, end)


def test_the_prompt_takes_the_tokens_so_far_unless_the_model_file_names_another(
    tmp_path: Path,
) -> None:
    folder = write_generator(tmp_path / "m")
    assert opened(folder).resumes == (("token", "input_ids"),)
    file = folder / "model.py"
    added = 'inputs.append(Tensor("so_far", "INT64", [-1], default=[]))'
    named = 'resumable = {"token": "so_far"}'
    text = file.read_text().replace("temperature: Any)", "temperature: Any, so_far: Any)")
    file.write_text(f"{text}\n{added}\n{named}\n")
    assert opened(folder).resumes == (("token", "so_far"),)


def test_the_digest_is_that_of_the_files_that_frontends_read(tmp_path: Path) -> None:
    folder = write_generator(tmp_path / "m")
    before = generator_of(folder)
    write(folder, "config.json", {})
    assert generator_of(folder) == before
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert generator_of(folder).digest != before.digest


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('Tensor("input_ids", "INT64", [-1])', 'Tensor("ids", "INT64", [-1])', "no input"),
        ('Tensor("input_ids", "INT64", [-1])', 'Tensor("input_ids", "FP32", [-1])', "is FP32 [-1]"),
        ('Tensor("input_ids", "INT64", [-1])', 'Tensor("input_ids", "INT64", [4])', "is INT64 [4]"),
        (
            'Tensor("input_ids", "INT64", [-1])',
            'Tensor("input_ids", "INT64", [-1], default=[1])',
            "has a default",
        ),
        ('Tensor("max_tokens", "INT64", [])', 'Tensor("max_tokens", "FP32", [])', "INT64 or INT32"),
        ('"seed", "INT64", [], default=0', '"seed", "INT64", []', "'seed' has no default"),
        ('"FP32", [], default=1.0', '"INT64", [], default=1', "must be FP32 or FP64 []"),
        ('[Tensor("token", "INT64", [-1])]', '[Tensor("token", "INT64", [])]', "is INT64 []"),
        (
            'outputs = [Tensor("token", "INT64", [-1])]',
            'outputs = [Tensor("a", "INT64", [-1]), Tensor("b", "INT64", [-1])]',
            "has 2 outputs",
        ),
    ],
)
def test_tensors_that_frontends_cannot_use_are_refused(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    folder = write_generator(tmp_path / "m")
    text = (MODELS / "repeating.py").read_text()
    assert old in text
    (folder / "model.py").write_text(text.replace(old, new))
    assert words in refused(folder)


def test_a_model_that_is_not_in_steps_is_refused(tmp_path: Path) -> None:
    folder = write_generator(tmp_path / "m")
    (folder / "model.py").write_text("def predict(instances):\n    return instances\n")
    assert "must be a model in steps" in refused(folder)


def test_a_directory_without_a_usable_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = write_generator(tmp_path / "m")
    (folder / "tokenizer.json").write_text("{}")
    assert "cannot read it" in refused(folder)
    (folder / "tokenizer.json").unlink()
    assert "no tokenizer.json" in refused(folder)


def runtime(path: Path, **settings: Any) -> str | None:
    document = {"models": {"m": {"path": str(path), **settings}}}
    (model,) = conclude(document, source="a test", base=path.parent).models
    return model.runtime


def test_a_model_file_beside_a_tokenizer_makes_a_directory_a_generator(tmp_path: Path) -> None:
    folder = write_generator(tmp_path / "m")
    assert runtime(folder, device="cuda:0", headers=["x-tenant"]) == "generator"
    with pytest.raises(ConfigError, match="truncate: is for the runtime text"):
        runtime(folder, truncate=False)
    (folder / "model.py").unlink()
    assert runtime(folder) == "text"


def test_a_generation_config_does_so_too_but_not_in_sentence_transformers(tmp_path: Path) -> None:
    write_decoder(tmp_path / "m")
    assert runtime(tmp_path / "m") == "generator"
    assert runtime(tmp_path / "m", runtime="text") == "text"
    write(tmp_path / "m", "modules.json", [])
    assert runtime(tmp_path / "m") == "text"


@pytest.mark.parametrize("place", [*DECODERS[1:], None])
def test_a_decoder_is_a_model_in_steps(tmp_path: Path, place: str | None) -> None:
    folder = tmp_path / "m"
    write_decoder(folder)
    if place is not None:
        (folder / place).parent.mkdir(exist_ok=True)
        (folder / "model.onnx").rename(folder / place)
    model = opened(folder)
    assert model.in_steps
    assert model.steps is not None
    assert model.steps.repeatable
    assert model.resumes == (("token", "emitted"),)
    assert model.cost is not None
    assert generator_of(folder).limit == DECODER_LIMIT
    # A model file goes before it.
    (folder / "model.py").write_bytes((MODELS / "repeating.py").read_bytes())
    assert opened(folder).cost is None


def test_a_directory_without_a_model_says_how_to_get_one(tmp_path: Path) -> None:
    write_decoder(tmp_path / "m")
    (tmp_path / "m" / "model.onnx").unlink()
    found = refused(tmp_path / "m")
    assert "neither a model.py nor a decoder; that may be model.onnx, onnx/model.onnx," in found
    assert "optimum-cli" not in found
    (tmp_path / "m" / "model.safetensors").write_bytes(b"")
    assert "optimum-cli export onnx --task text-generation-with-past --model" in refused(
        tmp_path / "m"
    )


def test_another_graph_is_refused(tmp_path: Path) -> None:
    write_decoder(tmp_path / "m")
    (tmp_path / "m" / "model.onnx").write_bytes(linear_onnx())
    assert "has no inputs past_key_values.*" in refused(tmp_path / "m")
