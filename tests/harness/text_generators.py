"""Small text generators: directories with a tokenizer of bytes and a model that repeats prompts."""

import json
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

LIMIT: Final = 4096
END: Final = "<|end|>"
SPECIAL: Final = (END, "<|user|>", "<|assistant|>", "<|system|>")
TEMPLATE: Final = (
    "{% for message in messages %}"
    "{% if message.role not in ('user', 'assistant', 'system') %}"
    "{{ raise_exception('unknown role ' + message.role) }}{% endif %}"
    "<|{{ message.role }}|>{{ message.content }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
MODELS: Final = Path(__file__).parents[1] / "serve" / "models"


def tokenizer() -> Tokenizer:
    """Return a tokenizer with a token for each byte, in the order of the bytes' characters."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={char: n for n, char in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([*SPECIAL])
    return made


def tokens(text: str) -> list[int]:
    """Return the tokens of a text."""
    ids: list[int] = tokenizer().encode(text).ids
    return ids


def write_generator(
    folder: Path, *, template: str | None = TEMPLATE, model: str = "repeating", **config: Any
) -> Path:
    """A text generator in a new folder; further members of tokenizer_config.json by name."""
    folder.mkdir(parents=True)
    tokenizer().save(str(folder / "tokenizer.json"))
    members: dict[str, Any] = {"eos_token": END, "model_max_length": LIMIT}
    if template is not None:
        members["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(members | config))
    (folder / "model.py").write_bytes((MODELS / f"{model}.py").read_bytes())
    return folder
