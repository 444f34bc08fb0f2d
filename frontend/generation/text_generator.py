"""The texts of one text generator, in a frontend: prompts to tokens, and tokens to texts."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from ringbatch.frontend.generation.chat_template import ChatTemplate, source_of, special_tokens
from ringbatch.frontend.generation.completion_bodies import (
    DEFAULT_TOKENS,
    DEFAULTS,
    Completion,
    Prompt,
)
from ringbatch.frontend.generation.incremental_decoder import IncrementalDecoder
from ringbatch.frontend.generation.prompts import Prompts, TokensRendering
from ringbatch.frontend.texts.loading import LoadedOnce, Unusable, log
from ringbatch.frontend.texts.openai import TOO_LONG
from ringbatch.frontend.texts.tokenizing import CHARACTERS_A_TOKEN, thread, tokenizer_library
from ringbatch.shm.errors import InvalidRequest, ModelNotReady
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.texts import GENERATOR_FILES, Generator, digest_of


class TextGenerator:
    """Tokenization of prompts for one model, and of its answers.

    Attributes:
        generator: of the model.
        prompts: makes parts for slots.
        rendering: reads the tokens of answers.

    Args:
        spec: the model, with `generator`.
    """

    def __init__(self, spec: ModelSpec) -> None:
        assert spec.generator is not None, "a text generator"
        self.generator = spec.generator
        self.prompts = Prompts(spec)
        self.rendering = TokensRendering(spec)
        self._name = spec.name
        self._inputs = {tensor.name for tensor in spec.inputs}
        self._tools = LoadedOnce(spec.name, partial(_Tools, spec.name, spec.generator))

    @property
    def obstacle(self) -> str:
        """Why no text can be answered, in words for clients; empty if no reason is known."""
        return self._tools.obstacle

    @property
    def is_loaded(self) -> bool:
        """True once requests do not wait for the tokenizer."""
        return self._tools.value is not None

    def load_soon(self) -> None:
        """Have a thread load the tokenizer."""
        self._tools.load_soon(thread)

    def try_to_load(self) -> None:
        """Load the tokenizer; by any thread."""
        self._tools.try_to_load()

    def prompts_of(self, asked: Completion) -> list[list[int]]:
        """Return the tokens of each prompt.

        Raises:
            InvalidRequest: a prompt is too long or has no tokens, or the model refuses its form.
            ModelNotReady: the tokenizer or the chat template cannot be loaded.
        """
        if asked.chat:
            return [self._fitting(self._chat_ids(asked), asked, "the prompt")]
        several = len(asked.prompts) > 1
        return [
            self._fitting(self._ids(one, where), asked, where)
            for number, one in enumerate(asked.prompts)
            for where in (f"prompt {number}" if several else "the prompt",)
        ]

    def max_tokens(self, asked: Completion, prompt_tokens: int) -> int:
        """Return the most tokens of an answer."""
        room = self.generator.limit - prompt_tokens
        return asked.max_tokens or (room if asked.chat else min(room, DEFAULT_TOKENS))

    def options(self, asked: Completion) -> dict[str, float]:
        """Return the options of a request for which the model has inputs.

        Raises:
            InvalidRequest: another option would change the answer.
        """
        for name, value in asked.options.items():
            if name not in self._inputs and value != DEFAULTS.get(name):
                raise InvalidRequest(
                    f'"{name}" is {value:g}, but model "{self._name}" has no input of that name; '
                    "leave it out"
                )
        return {name: value for name, value in asked.options.items() if name in self._inputs}

    def decoder(self) -> IncrementalDecoder:
        """Return a decoder for the tokens of one answer.

        Raises:
            ModelNotReady: the tokenizer cannot be loaded.
        """
        tools = self._tools.load()
        return IncrementalDecoder(tools.decode, tools.special)

    def _fitting(self, ids: list[int], asked: Completion, where: str) -> list[int]:
        """Return the tokens of a prompt that leaves room for its answer; raises as `prompts_of`."""
        if not ids:
            raise InvalidRequest(f"{where} has no tokens")
        limit = self.generator.limit
        if len(ids) + max(asked.max_tokens, 1) > limit:
            wanted = f" and {asked.max_tokens} for the answer" if asked.max_tokens else ""
            raise InvalidRequest(
                f"{TOO_LONG} {limit} tokens, but {where} has {len(ids)}{wanted}; "
                "send a shorter prompt, or ask for fewer tokens"
            )
        return ids

    def _ids(self, prompt: Prompt, where: str) -> list[int]:
        if isinstance(prompt, list):
            return self._checked(prompt, where)
        return self._encoded(self._tools.load(), prompt, where, add_special_tokens=True)

    def _chat_ids(self, asked: Completion) -> list[int]:
        tools = self._tools.load()
        text = self._chat(tools, asked)
        return self._encoded(tools, text, "the prompt", add_special_tokens=False)

    def _encoded(
        self, tools: "_Tools", text: str, where: str, *, add_special_tokens: bool
    ) -> list[int]:
        limit = self.generator.limit
        if len(text) > limit * CHARACTERS_A_TOKEN:
            raise InvalidRequest(
                f"{TOO_LONG} {limit} tokens, but {where} has {len(text)} characters"
            )
        return tools.encode(text, add_special_tokens=add_special_tokens)

    def _chat(self, tools: "_Tools", asked: Completion) -> str:
        if tools.template is not None:
            return tools.template.text(asked.messages)
        if tools.template_obstacle:
            raise ModelNotReady(f'model "{self._name}" is not ready: {tools.template_obstacle}')
        raise InvalidRequest(
            f'model "{self._name}" has no chat template, so it takes no chats; send a prompt to '
            "/v1/completions"
        )

    def _checked(self, ids: list[int], where: str) -> list[int]:
        vocabulary = self.generator.vocabulary
        wrong = next((token for token in ids if not 0 <= token < vocabulary), None)
        if wrong is not None:
            raise InvalidRequest(
                f"{where} has the token {wrong}; this model's are from 0 to {vocabulary - 1}"
            )
        return ids


class _Files(NamedTuple):
    """Contents of a directory's files, in the order of `GENERATOR_FILES`."""

    tokenizer: bytes
    config: bytes
    template: bytes


_CONFIG: Final = GENERATOR_FILES[1]


class _Tools:
    """The tokenizer and the chat template of a directory.

    Attributes:
        special: tokens without a text.
        template: None if there is none, or it cannot be used.
        template_obstacle: why it cannot be used, in words for clients; empty if it can, or if
            there is none.

    Raises:
        Unusable: the files cannot be read, or are others by now.
    """

    def __init__(self, model: str, generator: Generator) -> None:
        files = _read(generator)
        tokenizer = tokenizer_library().Tokenizer.from_buffer(files.tokenizer)
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder()
        self.special = frozenset(number for number, token in added.items() if token.special)
        self.template: ChatTemplate | None = None
        self.template_obstacle = ""
        config = _object(files.config, generator.path)
        source = source_of(config, files.template.decode(errors="replace"))
        if not source:
            return
        try:
            self.template = ChatTemplate(source, special_tokens(config))
        except Unusable as error:
            log.error("frontend: model %s: %s", model, error)
            self.template_obstacle = "its chat template cannot be used; the log says why"

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the tokens of a text."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=True)
        return text


def _read(generator: Generator) -> _Files:
    files = [Path(generator.path) / name for name in GENERATOR_FILES]
    try:
        contents = [file.read_bytes() if file.exists() else b"" for file in files]
    except OSError as error:
        raise Unusable(f"{generator.path}: cannot be read: {error.strerror}") from None
    if digest_of(contents) != generator.digest:
        raise Unusable(
            f"{generator.path}: its tokenizer or chat template is another by now than the one that "
            "the model was loaded with; ringbatch reload takes what is there now"
        )
    return _Files(*contents)


def _object(content: bytes, path: str) -> Mapping[str, Any]:
    try:
        found = json.loads(content or b"{}")
    except json.JSONDecodeError as error:
        raise Unusable(f"{path}/{_CONFIG}: is no JSON: {error}") from None
    return found if isinstance(found, dict) else {}
