"""Chat templates: the messages of a chat as one text, as transformers writes them."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NoReturn

from ringbatch.frontend.texts.loading import Unusable
from ringbatch.shm.errors import InvalidRequest, how_to_install

_SHOWN_CHARACTERS: Final = 200
_FAULTS: Final = (TypeError, ValueError, LookupError, AttributeError)
"""Errors of a template that does not expect such messages."""
_SPECIAL: Final = (
    *("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"),
    "additional_special_tokens",
)
"""Members of tokenizer_config.json that a template may name."""


def source_of(config: Mapping[str, Any], file: str) -> str:
    """Return the text of a template; empty if there is none.

    Args:
        config: tokenizer_config.json.
        file: the content of chat_template.jinja, which is newer; empty if there is none.
    """
    found = file or config.get("chat_template")
    if isinstance(found, list):
        # Several, by their names.
        named = {one.get("name"): one.get("template") for one in found if isinstance(one, dict)}
        found = named.get("default")
    return found if isinstance(found, str) else ""


def special_tokens(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the special tokens in tokenizer_config.json, as templates name them."""
    return {name: _token(config[name]) for name in _SPECIAL if config.get(name) is not None}


def _token(value: Any) -> Any:
    if isinstance(value, list):
        return [_token(item) for item in value]
    return value.get("content", "") if isinstance(value, dict) else value


class TemplateRefused(Exception):
    """A template does not take the messages; the text is its own."""


class ChatTemplate:
    """A chat template in use, in Jinja's sandbox.

    Args:
        source: its text.
        tokens: special tokens, by their names in templates.

    Raises:
        Unusable: it is no template, or Jinja is not installed.
    """

    def __init__(self, source: str, tokens: Mapping[str, Any]) -> None:
        try:
            from jinja2.exceptions import TemplateError, TemplateSyntaxError
            from jinja2.ext import loopcontrols
            from jinja2.sandbox import ImmutableSandboxedEnvironment

            from ringbatch.frontend.generation.generation_tag import GenerationTag
        except ModuleNotFoundError:
            raise Unusable(
                "chat templates need the module jinja2, which is not installed; "
                f"{how_to_install('text')}"
            ) from None
        self._faults = (TemplateError, *_FAULTS)
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = _now
        try:
            self._template = environment.from_string(source)
        except TemplateSyntaxError as error:
            line = error.lineno
            raise Unusable(f"the chat template is none that Jinja knows: line {line}") from error
        self._tokens = dict(tokens)

    def text(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Return the text of a chat, up to where the answer begins.

        Raises:
            InvalidRequest: the template refuses the messages.
        """
        try:
            return self._template.render(
                messages=messages, add_generation_prompt=True, tools=None, **self._tokens
            )
        except TemplateRefused as error:
            words = " ".join(str(error).split())[:_SHOWN_CHARACTERS]
            raise InvalidRequest(
                f"the model's chat template refuses the messages: {words}"
            ) from None
        except self._faults:
            raise InvalidRequest(
                "the model's chat template cannot write these messages; it may expect other roles"
            ) from None


def _raise(words: object) -> NoReturn:
    raise TemplateRefused(str(words))


def _to_json(value: Any, ensure_ascii: bool = False, indent: Any = None, **more: Any) -> str:
    # Jinja's own filter writes for HTML.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **more)


def _now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)
