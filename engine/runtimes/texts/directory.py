"""Directories of texts, as transformers, sentence-transformers and their exporters write them.

tokenizer.json                          tokenizer
model.onnx, openvino_model.xml, ...     encoder; see `ENCODERS`
modules.json                            steps after the encoder: pooling, normalizing
1_Pooling/config.json                   kind of pooling
sentence_bert_config.json, config.json, tokenizer_config.json
                                        longest text, names of classes

A text generator's directory has model.py, or a decoder of optimum's, in place of an encoder:

tokenizer.json                          tokenizer
model.py, model.onnx, ...               model in steps, or decoder; see `DECODERS`
tokenizer_config.json, chat_template.jinja
                                        special tokens, form of a chat
generation_config.json, config.json     tokens that end an answer, longest text
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ringbatch.engine.runtimes.texts.pooling import POOLINGS
from ringbatch.shm.errors import StartupError
from ringbatch.shm.texts import (
    ENCODER_MODULES,
    GENERATION_CONFIG,
    GENERATOR_FILES,
    GENERATOR_MODEL,
    TOKENIZER,
)

ENCODERS: Final = (
    "model.onnx",
    "onnx/model.onnx",
    "openvino_model.xml",
    "openvino/openvino_model.xml",
    "model.xml",
    "model.pt2",
)
"""Possible places of an encoder; the first that exists is used."""
DECODERS: Final = (
    "model.onnx",
    "onnx/model.onnx",
    "decoder_model_merged.onnx",
    "onnx/decoder_model_merged.onnx",
)
"""Possible places of a decoder; the first that exists is used."""
_DEFAULT_LIMIT: Final = 512
_DEFAULT_GENERATOR_LIMIT: Final = 2048
_ABSURD: Final = 1 << 24
"""Longest length that a tokenizer states; a greater one means that it has none."""
_OFFSET_POSITIONS: Final = ("roberta", "xlm-roberta", "camembert", "mpnet", "xlm-roberta-xl")
"""Models whose positions begin behind the padding's position."""
_POOLING_PREFIX: Final = "pooling_mode_"
_POOLINGS: Final = {
    "cls_token": "cls",
    "mean_tokens": "mean",
    "max_tokens": "max",
    "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "lasttoken": "lasttoken",
    "weightedmean_tokens": "weightedmean",
}
"""Settings in a pooling's configuration, and the names of these poolings."""


@dataclass(frozen=True, slots=True)
class TextFiles:
    """Files and settings of a directory.

    Attributes:
        tokenizer, encoder: the files.
        pooling: a key of `POOLINGS`; None if unknown.
        normalizes: True if vectors are scaled to length 1.
        limit: the most tokens of a text.
        padding: the number of the token that stands behind the end of a shorter text.
        vocabulary: the number of tokens of the encoder; 0 if unknown.
        dims: dimensions of the encoder's vector of a token; 0 if unknown.
        classifies: True if the encoder is a classifier.
        labels: the names of its classes, in order; empty if they have none.
    """

    tokenizer: Path
    encoder: Path
    pooling: str | None
    normalizes: bool
    limit: int
    padding: int
    vocabulary: int
    dims: int
    classifies: bool
    labels: tuple[str, ...]


def read_directory(path: Path) -> TextFiles:
    """Return the files and settings of a directory.

    Raises:
        StartupError: a file is missing or unknown; the text says which.
    """
    tokenizer = path / TOKENIZER
    encoder = next((path / name for name in ENCODERS if (path / name).is_file()), None)
    if encoder is None:
        raise StartupError(_no_encoder(path, has_tokenizer=tokenizer.is_file()))
    if not tokenizer.is_file():
        raise StartupError(
            f"{path}: there is an encoder, {encoder.name}, but no {TOKENIZER}, by which texts "
            "become tokens; transformers writes it with AutoTokenizer.from_pretrained(...)"
            ".save_pretrained(...); an encoder that clients send tokens to is served by the path "
            "of its own file"
        )
    config = _object(path / "config.json")
    sentence = _object(path / "sentence_bert_config.json")
    if sentence.get("do_lower_case"):
        raise StartupError(
            f"{path}/sentence_bert_config.json: do_lower_case is true, which is not supported; let "
            f"the normalizer in {TOKENIZER} do it"
        )
    pooling, normalizes = _modules(path)
    labels = config.get("id2label") or {}
    architectures = config.get("architectures") or [""]
    return TextFiles(
        tokenizer=tokenizer,
        encoder=encoder,
        pooling=pooling,
        normalizes=normalizes,
        limit=_limit(config, sentence, _object(path / "tokenizer_config.json")),
        padding=_whole(config.get("pad_token_id")),
        vocabulary=_whole(config.get("vocab_size")),
        dims=_whole(config.get("hidden_size")),
        classifies=str(architectures[0]).endswith("ForSequenceClassification"),
        labels=tuple(str(labels[key]) for key in sorted(labels, key=int)),
    )


@dataclass(frozen=True, slots=True)
class GeneratorFiles:
    """Files and settings of a text generator's directory.

    Attributes:
        model: the model in steps, or the decoder.
        contents: of `GENERATOR_FILES`, in their order; empty for an absent one.
        limit: the most tokens of a prompt and its answer together.
        vocabulary: the number of the model's tokens; 0 if unknown.
        ends: tokens that end an answer.
        end_token: another one, as text; empty if there is none.
    """

    model: Path
    contents: tuple[bytes, ...]
    limit: int
    vocabulary: int
    ends: tuple[int, ...]
    end_token: str


def read_generator_directory(path: Path) -> GeneratorFiles:
    """Return the files and settings of a text generator's directory.

    Raises:
        StartupError: a file is missing or cannot be read; the text says which.
    """
    if not (path / TOKENIZER).is_file():
        raise StartupError(
            f"{path}: there is no {TOKENIZER}, by which texts become tokens; "
            "transformers writes it with AutoTokenizer.from_pretrained(...).save_pretrained(...); "
            f"a model file that needs none is served by its own path{_model_file(path)}"
        )
    places = (path / name for name in (GENERATOR_MODEL, *DECODERS))
    model = next((place for place in places if place.is_file()), None)
    if model is None:
        raise StartupError(_no_decoder(path))
    config = _object(path / "config.json")
    tokenizer = _object(path / "tokenizer_config.json")
    generation = _object(path / GENERATION_CONFIG)
    ends = generation.get("eos_token_id", config.get("eos_token_id"))
    end_token = tokenizer.get("eos_token")
    if isinstance(end_token, dict):
        end_token = end_token.get("content")
    files = (path / name for name in GENERATOR_FILES)
    return GeneratorFiles(
        model=model,
        contents=tuple(file.read_bytes() if file.is_file() else b"" for file in files),
        limit=_limit(config, {}, tokenizer, _DEFAULT_GENERATOR_LIMIT),
        vocabulary=_whole(config.get("vocab_size")),
        ends=tuple(end for end in (ends if isinstance(ends, list) else [ends]) if type(end) is int),
        end_token=end_token if isinstance(end_token, str) else "",
    )


READERS: Final[dict[str, Callable[[Path], object]]] = {
    "text": read_directory,
    "generator": read_generator_directory,
}
"""Readers of models that are directories, by runtime; `OF_DIRECTORIES` names them to settings."""


def _no_encoder(path: Path, *, has_tokenizer: bool) -> str:
    if has_tokenizer:
        found = "there is a tokenizer.json, but no encoder"
        return f"{path}: {found}; it may be {_listed(ENCODERS)}{_export(path, '')}"
    return (
        f"{path}: a directory is served as a model of texts, but there is neither a {TOKENIZER} "
        f"nor an encoder, which may be {_listed(ENCODERS)}{_export(path, '')}; a model file is "
        f"served by its own path{_model_file(path)}"
    )


def _model_file(path: Path) -> str:
    """Return the path of a model in Python in a directory, with a comma; nothing if none is."""
    names = (GENERATOR_MODEL, "__init__.py", f"{path.name}.py")
    found = next((path / name for name in names if (path / name).is_file()), None)
    return "" if found is None else f", {found}"


def _no_decoder(path: Path) -> str:
    return (
        f"{path}: there is a tokenizer.json, but neither a {GENERATOR_MODEL} nor a decoder; that "
        f"may be {_listed(DECODERS)}{_export(path, '--task text-generation-with-past ')}"
    )


def _listed(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _export(path: Path, task: str) -> str:
    """Return how weights alone become a graph; nothing if there are none."""
    weights = next(
        (n for n in ("model.safetensors", "pytorch_model.bin") if (path / n).is_file()), ""
    )
    return (
        f"; {weights} has weights alone, which optimum exports: optimum-cli export onnx {task}"
        f"--model {path} {path}"
        if weights
        else ""
    )


def _modules(path: Path) -> tuple[str | None, bool]:
    """Return the pooling, and whether vectors are normalized."""
    file = path / ENCODER_MODULES
    if not file.is_file():
        return None, False
    modules = _read(file)
    pooling, normalizes = None, False
    if not isinstance(modules, list) or not all(isinstance(one, dict) for one in modules):
        raise StartupError(f"{file}: must be a list of modules, each an object")
    for module in modules:
        kind = str(module.get("type", "")).rpartition(".")[2]
        if kind == "Pooling":
            pooling = _pooling(path / str(module.get("path", "")) / "config.json")
        elif kind == "Normalize":
            normalizes = True
        elif kind != "Transformer":
            raise StartupError(
                f"{file}: has the module {kind!r}, which is not known; known are Transformer, "
                "Pooling and Normalize"
            )
    return pooling, normalizes


def _pooling(file: Path) -> str:
    config = _object(file)
    named = config.get("pooling_mode")
    on = [str(named)] if named else []
    for key, value in config.items():
        if key.startswith(_POOLING_PREFIX) and value is True:
            mode = key.removeprefix(_POOLING_PREFIX)
            on.append(_POOLINGS.get(mode, mode))
    if len(on) != 1 or on[0] not in POOLINGS:
        found = " and ".join(on) or "none"
        raise StartupError(
            f"{file}: the pooling is {found}; it must be one of {', '.join(POOLINGS)}"
        )
    return on[0]


def _limit(
    config: dict[str, Any],
    sentence: dict[str, Any],
    tokenizer: dict[str, Any],
    default: int = _DEFAULT_LIMIT,
) -> int:
    positions = _whole(config.get("max_position_embeddings", config.get("n_positions")))
    if positions and config.get("model_type") in _OFFSET_POSITIONS:
        positions -= _whole(config.get("pad_token_id")) + 1
    limits = (
        _whole(sentence.get("max_seq_length")),
        _whole(tokenizer.get("model_max_length")),
        positions,
    )
    return min((limit for limit in limits if 0 < limit < _ABSURD), default=default)


def _whole(value: object) -> int:
    return int(value) if isinstance(value, int | float) and 0 <= value < 1 << 60 else 0


def _object(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file; an empty one if there is no such file."""
    if not file.is_file():
        return {}
    found = _read(file)
    if not isinstance(found, dict):
        raise StartupError(f"{file}: must be an object")
    return found


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise StartupError(f"{file}: cannot be read as JSON: {error}") from None
