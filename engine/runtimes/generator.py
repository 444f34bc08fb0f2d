"""The generator runtime: a directory with a tokenizer and a model in steps, which makes tokens.

Frontends make the tokens of prompts, and texts of the tokens that come out, see
`ringbatch.shm.texts.Generator`. The model is a decoder in an ONNX file, see
`ringbatch.engine.runtimes.graphs.decoder`, or a model file, model.py. That declares:

    inputs    input_ids, INT64 or INT32 [-1]: the tokens of a prompt
              max_tokens, INT64 or INT32 []: the most tokens that are wanted; optional
              temperature, top_p, presence_penalty, frequency_penalty, FP32 or FP64 [], and seed,
              INT64 or INT32 []: optional, each with a default
              others, each with a default
    outputs   one, INT64 or INT32 [-1]: the next tokens

If the worker dies behind a token, the answer goes on elsewhere with a prompt that has all tokens so
far.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ringbatch.engine.models.extras import required
from ringbatch.engine.models.model import Model, Options, refusing
from ringbatch.engine.runtimes.graphs.decoded_rows import decoding
from ringbatch.engine.runtimes.graphs.decoder import Decoder
from ringbatch.engine.runtimes.graphs.onnx import open_session
from ringbatch.engine.runtimes.python import open_python
from ringbatch.engine.runtimes.texts.directory import read_generator_directory
from ringbatch.shm.errors import StartupError
from ringbatch.shm.tensor import ANY, Tensor
from ringbatch.shm.texts import (
    GENERATOR_MODEL,
    MAX_TOKENS,
    PROMPT,
    SAMPLING,
    SEED,
    TOKENIZER,
    Generator,
    digest_of,
)

_WHOLE: Final = ("INT64", "INT32")
_FLOATS: Final = ("FP32", "FP64")
_OPTIONS: Final = {
    MAX_TOKENS: _WHOLE,
    SEED: _WHOLE,
    **dict.fromkeys(SAMPLING, _FLOATS),
}
"""Inputs for what clients may ask, and their datatypes."""


def open_generator(path: Path, options: Options) -> Model:
    """Load a directory; see `ringbatch.engine.runtimes.opening.open_model`."""
    files = read_generator_directory(path)
    file = files.model
    tokenizers = required("tokenizers", "text", path)
    with refusing(path / TOKENIZER, f"tokenizers {tokenizers.__version__} cannot read it"):
        tokenizer = tokenizers.Tokenizer.from_file(str(path / TOKENIZER))
    generator = Generator(
        path=str(path),
        digest=digest_of(files.contents),
        limit=files.limit,
        vocabulary=max(tokenizer.get_vocab_size(), files.vocabulary),
        ends=_ends(tokenizer, files.ends, files.end_token),
    )
    options = replace(options, content=None)
    if file.name == GENERATOR_MODEL:
        model = _open_in_steps(file, options)
    else:
        decoder = Decoder(file, open_session(file, options))
        model = decoding(decoder, generator.limit, generator.ends)
    return replace(_resumable(model), generator=generator)


def _open_in_steps(file: Path, options: Options) -> Model:
    """Load a model file in steps, and check that frontends can ask it for texts."""
    model = open_python(file, options)
    if not model.in_steps:
        raise StartupError(
            f"{file}: it has a tokenizer beside it, so it must be a model in steps, "
            "with begin and step; any other model is served from another directory"
        )
    _expect_inputs(file, model.inputs)
    _expect_output(file, model.outputs)
    return model


def _resumable(model: Model) -> Model:
    """Return the model with the prompt as the input that takes the tokens so far.

    A model file that names another input keeps it.
    """
    assert model.steps is not None, "a text generator works in steps"
    resumes = model.steps.resumes or ((model.outputs[0].name, PROMPT),)
    return replace(model, steps=replace(model.steps, resumes=resumes))


def _ends(tokenizer: Any, ends: Sequence[int], text: str) -> tuple[int, ...]:
    """Return the tokens that end an answer, each once."""
    named = tokenizer.token_to_id(text) if text else None
    return tuple(dict.fromkeys([*ends, *([] if named is None else [named])]))


def _expect_inputs(file: Path, inputs: Sequence[Tensor]) -> None:
    """Refuse inputs that frontends cannot fill.

    Raises:
        StartupError: one is missing, or is another than it must be.
    """
    if PROMPT not in (tensor.name for tensor in inputs):
        raise StartupError(
            f'{file}: has no input {PROMPT!r}; declare Tensor("{PROMPT}", "INT64", [-1])'
        )
    for tensor in inputs:
        if tensor.name == PROMPT:
            _expect_tokens(file, "input", tensor)
            if tensor.default is not None:
                raise StartupError(
                    f"{file}: input {PROMPT!r} has a default, but it is never left out"
                )
            continue
        kinds = _OPTIONS.get(tensor.name)
        if kinds and (tensor.datatype.name not in kinds or tensor.shape):
            raise StartupError(
                f"{file}: input {tensor.name!r} is {tensor.datatype.name} {[*tensor.shape]}; it "
                f"must be {' or '.join(kinds)} []"
            )
        if tensor.default is None and tensor.name != MAX_TOKENS:
            raise StartupError(
                f"{file}: input {tensor.name!r} has no default, but clients may leave it out; only "
                f"{PROMPT} and {MAX_TOKENS} are always there"
            )


def _expect_output(file: Path, outputs: Sequence[Tensor]) -> None:
    if len(outputs) != 1:
        raise StartupError(
            f"{file}: has {len(outputs)} outputs; a text generator has one, INT64 or INT32 [-1]"
        )
    _expect_tokens(file, "output", outputs[0])


def _expect_tokens(file: Path, role: str, tensor: Tensor) -> None:
    if tensor.datatype.name not in _WHOLE or tensor.shape != (ANY,):
        raise StartupError(
            f"{file}: {role} {tensor.name!r} is {tensor.datatype.name} {[*tensor.shape]}; it must "
            "be INT64 or INT32 [-1], a row of tokens"
        )
