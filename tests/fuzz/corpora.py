"""Corpora of the decoders: initial inputs, and tokens that are put into them."""

import gzip
import struct
import zlib
from collections.abc import Sequence
from typing import Final

from fuzz.mutate import Mutator
from fuzz.requests import CORPUS, TOKENS

from ringbatch.frontend.grpc.messages import inference
from ringbatch.shm.region import Region, encode

TYPES: Final = ("BOOL", "INT8", "UINT64", "FP32", "FP64", "INT64")
"""Datatypes of the model that has one input of each."""


def _v2_binary(text: bytes, binary: bytes = b"") -> bytes:
    return b"%d\n%b%b" % (len(text), text, binary)


_V1_TEXTS: Final = (
    b'{"instances":[[1,2],[3.5,-4e3]]}',
    b'{"instances":[1,2,3]}',
    b'{"instances":[{"n":[1,2],"s":["a","b"]}]}',
    b'{"inputs":{"n":[[1]],"s":[["a","\\u0000"]]}}',
    b'{"inputs":[[1,2]],"signature_name":"x"}',
    b'{"instances":[{"s":[{"b64":"AAE="},"\\ud83d\\ude00"],"n":[]}]}',
    b'{"instances":[{"bool":[true],"int8":[-1],"uint64":[18446744073709551615],'
    b'"fp32":[1],"fp64":[1e308],"int64":[-9223372036854775808]}]}',
    b'{"instances":[null,{"a":6.0,"b":[1e400,12345678901234567890]},"\\ud800"]}',
    b'{"instances":[],"instances":[1]}',
    b'\xef\xbb\xbf{"instances":[1]}',
    b"[" * 200 + b"]" * 200,
)
_BODIES_OF_TEXTS: Final = (
    b'{"input":[[5,6,1,2,3],[6],[1]],"dimensions":2}',
    b'{"input":["a","b"],"encoding_format":"base64","truncate":true}',
    b'{"input":"a text","model":"m"}',
    b'{"query":"a","texts":["b","c"],"raw_scores":true,"return_text":true}',
    b'{"query":"a","documents":["b",{"text":"c"}],"top_n":1,"return_documents":true}',
    b'{"inputs":[["a"],["b"]],"raw_scores":true}',
    b'{"inputs":"a text"}',
    b'{"inputs":[[5,6],[1]],"normalize":false,"dimensions":2}',
    b'{"texts":["a"],"input_type":"q","embedding_types":["float"],"truncate":"END"}',
)
_MEMBERS_OF_TEXTS: Final = (
    *(b'"input"', b'"inputs"', b'"texts"', b'"documents"', b'"text"', b'"query"'),
    *(b'"truncate"', b'"embedding_types"', b'"normalize"'),
)
_COMPLETIONS: Final = (
    b'{"prompt":[5,6,1],"max_tokens":2,"temperature":0.5,"top_p":1,"seed":-4,"stop":["a","b"]}',
    b'{"prompt":["a text"],"model":"m","stream":true,"stream_options":{"include_usage":true}}',
    b'{"prompt":[[1,2]],"n":1,"best_of":1,"echo":false,"logprobs":null,"logit_bias":{},"stop":"x"}',
    b'{"prompt":[[1,2],[3],[4,5]],"n":2,"best_of":2,"seed":9,"max_tokens":1}',
)
_CHATS: Final = (
    b'{"messages":[{"role":"user","content":"Hi","name":"a"}],"max_completion_tokens":3}',
    b'{"messages":[{"role":"system","content":[{"type":"text","text":"a"}]},'
    b'{"role":"assistant","content":"b","tool_calls":[],"refusal":null}],"seed":1}',
    b'{"messages":[],"tools":[],"response_format":{"type":"text"},"modalities":["text"]}',
)
_MEMBERS_OF_COMPLETIONS: Final = (
    *(b'"prompt"', b'"messages"', b'"content"', b'"role"', b'"stop"', b'"seed"', b'"temperature"'),
    *(b'"max_tokens"', b'"n"', b'"stream"', b'"type"', b'"text"', b'"name"'),
)
_X: Final = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],'
_V2_TEXTS: Final = (
    b"x\n" + _X + b'"data":[1,2]}]}',
    b"x\n" + _X + b'"data":[[1,2.5]]}],"id":"i","outputs":[{"name":"y","parameters":'
    b'{"binary_data":true,"classification":2}}]}',
    _v2_binary(_X + b'"parameters":{"binary_data_size":8}}]}', b"\0\0\x80?\0\0\0@"),
    _v2_binary(
        b'{"inputs":[{"name":"n","datatype":"INT64","shape":[1,1],"parameters":{'
        b'"binary_data_size":8}},{"name":"s","datatype":"BYTES","shape":[1,2],"parameters":{'
        b'"binary_data_size":10}}]}',
        b"\1\0\0\0\0\0\0\0\1\0\0\0a\1\0\0\0b",
    ),
    b'x\n{"inputs":[{"name":"n","datatype":"INT64","shape":[2,1],"data":[1,2]},'
    b'{"name":"s","datatype":"BYTES","shape":[2,2],"data":["a","b","c","d"]}],'
    b'"parameters":{"timeout":1000,"binary_data_output":true}}',
    b"x\n" + _X + b'"parameters":{"shared_memory_region":"r","shared_memory_byte_size":8,'
    b'"shared_memory_offset":0}}]}',
    _v2_binary(b"", b"\0\0\x80?\0\0\0@"),
    b'x\n{"inputs":[%b]}'
    % b",".join(
        b'{"name":"%b","datatype":"%b","shape":[1,1],"data":[%b]}'
        % (name.lower().encode(), name.encode(), b"true" if name == "BOOL" else b"1")
        for name in TYPES
    ),
    b'x\n{"inputs":[{"name":"x","datatype":"UINT8","shape":[],"data":[255]}]}',
    b'x\n{"inputs":[{"name":"x","datatype":"INT64","shape":[1,3],"data":[[1,2,3]]}]}',
)
_JSON_TOKENS: Final = (
    b'"stream"',
    *(b'{}[],:"'[i : i + 1] for i in range(7)),
    b"null",
    b"true",
    b"-1",
    b"0",
    b"1e999",
    b"NaN",
    b"-0.0",
    b"18446744073709551616",
    b"9223372036854775808",
    b"4294967297",
    b"1" * 400,
    b"\\ud800",
    b"\\u0000",
    b"\xff",
    b"\xed\xa0\x80",
    b'"inputs"',
    b'"instances"',
    b'"data"',
    b'"shape"',
    b'"parameters"',
    b'"binary_data_size"',
    b'"binary_data"',
    b'"shared_memory_region"',
    b'"shared_memory_byte_size"',
    b'"shared_memory_offset"',
    b'"classification"',
    b'"timeout"',
    b'"b64"',
    *(b'"%b"' % name.encode() for name in (*TYPES, "BYTES")),
    b"[" * 1100,
    b"\n",
)


def _grpc_corpus() -> tuple[bytes, ...]:
    message = inference("ModelInferRequest")
    one = {"name": "x", "datatype": "FP32", "shape": [1, 2]}
    found = (
        message(inputs=[one], raw_input_contents=[b"\0\0\x80?\0\0\0@"]),
        message(inputs=[{**one, "contents": {"fp32_contents": [1, 2]}}]),
        message(
            id="i",
            inputs=[
                {"name": "n", "datatype": "INT64", "shape": [1, 1]},
                {"name": "s", "datatype": "BYTES", "shape": [1, 2]},
            ],
            raw_input_contents=[bytes(8), b"\1\0\0\0a\1\0\0\0b"],
            outputs=[{"name": "s"}],
        ),
        message(
            inputs=[
                {
                    "name": "x",
                    "datatype": "INT64",
                    "shape": [1, 3],
                    "contents": {"int64_contents": [1, 2, 3]},
                }
            ]
        ),
    )
    every = message(
        inputs=[{"name": t.lower(), "datatype": t, "shape": [1, 1]} for t in TYPES],
        raw_input_contents=[bytes(size) for size in (1, 1, 8, 4, 8, 8)],
    )
    alone = message(
        inputs=[{"name": "x", "datatype": "UINT8", "shape": []}], raw_input_contents=[b"a"]
    )
    return tuple(given.SerializeToString() for given in (*found, every, alone))


_BINARY_TOKENS: Final = (
    b"\0",
    b"\xff",
    b"\xff" * 4,
    b"\xff" * 8,
    b"\0\0\0\x80",
    b"\x80" * 10,
    struct.pack("<Q", 1 << 63),
    struct.pack("<f", float("nan")),
)
_TEXT: Final = b"ringbatch " * 40
_ZIPPED: Final = (
    gzip.compress(_TEXT),
    zlib.compress(_TEXT),
    gzip.compress(b"a") * 5,
    gzip.compress(bytes(1 << 20)),
    zlib.compress(b"") + b"tail",
    zlib.compress(_TEXT, wbits=-15),
)
_HEADER_BLOCKS: Final = tuple(
    # POST, http, a path and an authority; then fields that enter the table, or do not.
    b"\x83\x86\x44\x02/p\x41\x01x" + fields
    for fields in (
        b"",
        b"\0\x01a\x01b",
        b"\x40\x01a\x01b\xbe",
        b"\x10\x06cookie\x03c=1",
        b"\0\x01a\x83\x1c\x64\x5d",
    )
)
_VALUES: Final = (
    b"gzip;q=0.5, deflate;q=1, *;q=0",
    b"identity;q=0",
    b"gzip, deflate",
    b"x-gzip",
    b"1.5",
    b"999999999.999999999",
    b"0",
)
_VALUE_TOKENS: Final = (*TOKENS, b"q=", b";", b"gzip", b"deflate", b"*", b".", b"1e5")
_REGISTRATIONS: Final = (
    b'{"key":"/ok_1","offset":0,"byte_size":64}',
    b'{"key":"/ok_../../etc/passwd","offset":-1,"byte_size":1e9}',
)
_PARAMETERS: Final = (
    b'{"shared_memory_region":"r","shared_memory_byte_size":8,"shared_memory_offset":4}',
    b'{"binary_data":true}',
)
_ASKED: Final = (
    b'{"instances":[[1,2]],"stream":true}',
    b'{"inputs":[{"name":"stream","data":[NaN]}],"parameters":{"stream":false}}',
)
_REGIONS: Final = tuple(
    struct.pack(f"<{len(words)}Q", *words)
    for words in (
        encode(Region("r", "/ok_1", 0, 64, 1, 2)),
        encode(Region("n" * 255, "k" * 256, 8, 1 << 40, 1, 2)),
    )
)
_BYTES_TENSORS: Final = (b"\2\1\0\0\0a\0\0\0\0", b"\0", b"\1\4\0\0\0abcd")
_FLOATS: Final = (
    b"\2" + struct.pack("<4f", 1, -2, float("inf"), float("nan")),
    b"\0",
)
_OTHERS: Final = {
    "completion": (_COMPLETIONS, (*_JSON_TOKENS, *_MEMBERS_OF_COMPLETIONS)),
    "chat": (_CHATS, (*_JSON_TOKENS, *_MEMBERS_OF_COMPLETIONS)),
    "head": (CORPUS, TOKENS),
    "bytes tensor": (_BYTES_TENSORS, _BINARY_TOKENS),
    "gzip": (_ZIPPED, _BINARY_TOKENS),
    "deflate": (_ZIPPED, _BINARY_TOKENS),
    "header block": (_HEADER_BLOCKS, _BINARY_TOKENS),
    "accept encoding": (_VALUES, _VALUE_TOKENS),
    "content encoding": (_VALUES, _VALUE_TOKENS),
    "timeout": (_VALUES, _VALUE_TOKENS),
    "asked events": (_ASKED, _JSON_TOKENS),
    "registration": (_REGISTRATIONS, (*_JSON_TOKENS, b"/", b"..", b"/ok_")),
    "parameters": (_PARAMETERS, _JSON_TOKENS),
    "region words": (_REGIONS, _BINARY_TOKENS),
    "classification": (_FLOATS, _BINARY_TOKENS),
}


_GENERATE_TEXTS: Final = (
    b'{"x":[1,2]}',
    b'{"x":[[1,2],[3,4]],"id":"a","parameters":{"top":3,"why":null}}',
    b'{"x":"text","y":[1.5],"parameters":{"z":[true]}}',
    b'{"n":[[1,2]],"s":[["p","q"]]}',
    b'{"bool":true,"int8":1,"uint64":2,"fp32":0.5,"fp64":[0.5],"int64":[[3]]}',
    b'{"x":[],"parameters":{"binary_data_output":false,"timeout":5}}',
)


def mutator(target: str) -> Mutator:
    """Return the mutator of a target."""
    return Mutator(*_begins(target))


def corpus_of(target: str) -> Sequence[bytes]:
    """Return the initial inputs of a target."""
    corpus, _ = _begins(target)
    return corpus


def _begins(target: str) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """The corpus of a target, and its tokens."""
    protocol = target.split()[0]
    if protocol == "v1":
        return _V1_TEXTS, _JSON_TOKENS
    if protocol == "v2":
        return _V2_TEXTS, (*_JSON_TOKENS, *_BINARY_TOKENS)
    if protocol == "generate":
        return _GENERATE_TEXTS, _JSON_TOKENS
    if protocol == "grpc":
        return _grpc_corpus(), _BINARY_TOKENS
    if protocol == "texts":
        return _BODIES_OF_TEXTS, (*_JSON_TOKENS, *_MEMBERS_OF_TEXTS)
    return _OTHERS[target]
