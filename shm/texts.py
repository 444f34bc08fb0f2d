"""Texts as they stand in slots: the numbers of their tokens.

Clients send texts, or pairs of them, as BYTES. A frontend makes tokens of them, so that batches are
formed by what texts cost. In a slot, rows are padded to the longest of them with `FILLER`, which
says of each where it ends; a token of the second text of a pair is marked by the bit `SECOND`.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ringbatch.shm.tensor import ANY, Tensor

IDS: Final = Tensor("ids", "INT32", [ANY])
"""Tensor of tokens in slots."""
FILLER: Final = -1
SECOND: Final = 1 << 30
TEXT: Final = Tensor("text", "BYTES", [])
QUERY: Final = Tensor("query", "BYTES", [])
PROMPT: Final = "input_ids"
"""Input of a text generator with the tokens of a prompt."""
MAX_TOKENS: Final = "max_tokens"
"""The input of a text generator with the most tokens that are wanted."""
SAMPLING: Final = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
"""Optional inputs of a text generator, numbers that choose among tokens."""
SEED: Final = "seed"
"""Another one: where its random numbers begin."""
GENERATOR_MODEL: Final = "model.py"
"""The model of a text generator in Python."""
GENERATION_CONFIG: Final = "generation_config.json"
"""The file by which transformers and its exporters know a model that generates texts."""
ENCODER_MODULES: Final = "modules.json"
"""The file by which sentence-transformers knows an encoder."""
TOKENIZER: Final = "tokenizer.json"
"""The file that every directory of texts has."""
GENERATOR_FILES: Final = (TOKENIZER, "tokenizer_config.json", "chat_template.jinja")
"""Files of a text generator's directory that frontends read; the first must be there."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokenization of texts for one model.

    Attributes:
        path: of its tokenizer.json.
        digest: of that file's content, when the model was opened.
        limit: the most tokens of one text, or pair, those that the tokenizer adds among them.
        truncate: True to cut a longer one, False to refuse it.
        pairs: True if an instance is a query and a text.
        vocabulary: how many numbers of tokens there are.
    """

    path: str
    digest: str
    limit: int
    truncate: bool
    pairs: bool
    vocabulary: int

    def edges(self, edges: Sequence[int]) -> tuple[int, ...]:
        """Return the bucket edges that a text's length can reach, the last being the limit.

        The edges ascend.
        """
        if not edges:
            return ()
        return (*(edge for edge in edges if edge < self.limit), self.limit)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Inputs that clients send."""
        return (QUERY, TEXT) if self.pairs else (TEXT,)


@dataclass(frozen=True, slots=True)
class Generator:
    """Generation of texts with one model, whose inputs stand in slots as it declares them.

    Attributes:
        path: of the directory with `GENERATOR_FILES`.
        digest: of these files, when the model was opened; see `digest_of`.
        limit: the most tokens of a prompt and its answer together.
        vocabulary: how many numbers of tokens there are.
        ends: tokens that end an answer.
    """

    path: str
    digest: str
    limit: int
    vocabulary: int
    ends: tuple[int, ...]


def digest_of(contents: Iterable[bytes]) -> str:
    """Return a digest of the contents of files, in their order; empty ones are as absent ones."""
    digest = hashlib.blake2b(digest_size=16)
    for content in contents:
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()
