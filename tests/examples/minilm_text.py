"""A model file that embeds texts: words are told apart here, and the rest is `minilm.pt2`.

`minilm_to_pt2.py` writes that file, and `tokenizer.json`, beside which this one is put. Texts of
any length share a batch: they are padded to the longest, and the padding is not looked at.
"""

import os
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from tokenizers import Tokenizer

from ringbatch.engine import InvalidInput, Tensor

inputs = [Tensor("text", "BYTES", [])]
outputs = [Tensor("embedding", "FP32", [384])]  # of length 1, so that products are cosines

LONGEST: Final = 256
"""Words, beyond which a text is cut; the model was trained with no more."""

loaded: dict[str, Any] = {}


def load() -> None:
    """Once in each worker, before it takes work."""
    folder = Path(__file__).parent
    # One text is too little to be worth another thread, and one that idles takes time from others.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(LONGEST)
    tokenizer.enable_padding()
    loaded["tokenizer"] = tokenizer
    loaded["network"] = torch.export.load(folder / "minilm.pt2").module()


def predict(text: Any) -> Any:
    """The embeddings, FP32 [batch, 384], of texts [batch]."""
    try:
        texts = [value.decode() for value in text]
    except UnicodeDecodeError:
        raise InvalidInput("a text must be UTF-8") from None
    encodings = loaded["tokenizer"].encode_batch(texts)
    ids = torch.from_numpy(np.array([encoding.ids for encoding in encodings]))
    mask = torch.from_numpy(np.array([encoding.attention_mask for encoding in encodings]))
    with torch.inference_mode():
        return loaded["network"](ids, mask)["embedding"].numpy()
