"""Decoders in the frontend's sources: each is a target of the fuzzer and of the growth oracle.

Others are listed, because no stranger's bytes come there.
"""

import ast
from collections.abc import Iterator
from typing import Final

import pytest
from fuzz.bodies import CONNECTIONS
from fuzz.decoders import TARGETS
from sources import ROOT

from ringbatch.frontend.texts.offloaded_texts import FORMS

PARSES: Final = {
    "FromString",
    "HttpRequestParser",
    "ParseFromString",
    "b64decode",
    "decompressobj",
    "from_bytes",
    "frombuffer",
    "get_media",
    "iter_unpack",
    "literal_eval",
    "loads",
    "parse_qs",
    "parse_url",
    "unpack",
    "unpack_from",
    "unquote",
    "urlsafe_b64decode",
}
"""Functions that parse bytes or texts, by their last names."""
RECEIVES: Final = {"buffer_updated", "data_received", "get_data", "media", "stream"}
"""Methods that a transport calls with bytes, and attributes of a request that has some."""
READ_BY: Final = {
    "codec/asked_events.py": ("asked events",),
    "codec/bytes_tensor.py": ("bytes tensor",),
    "codec/json_to_tensor.py": ("v1 all", "v2 all"),
    "falcon/control_bodies.py": ("registration", "http/1.1 chunks"),
    "falcon/meant_model.py": ("completion", "chat"),
    "falcon/exchange.py": ("http/1.1 chunks", "http/1.1 gzip", "http/2 data"),
    "grpc/offloaded_messages.py": ("grpc fixed", "grpc all"),
    "grpc/connection.py": ("grpc calls", "grpc data"),
    "grpc/message_reader.py": ("grpc messages", "grpc gzip"),
    "grpc/reading_in_place.py": ("grpc data",),
    "grpc/message_head_cache.py": ("grpc calls",),
    "grpc/service.py": ("grpc control",),
    "http/content_coding.py": ("gzip", "deflate", "http/1.1 gzip", "http/2 gzip", "grpc deflate"),
    "http/fallback.py": ("http/1.1 chunks", "http/1.1 pipelined", "http/1.1 upgrade"),
    "http/fast_lane.py": ("http/1.1 length", "http/1.1 pipelined"),
    "http/head_meaning.py": ("head", "http/1.1 pipelined"),
    "http/receiver.py": ("http/1.1 length",),
    "http2/bodies.py": ("http/2 data", "grpc data"),
    "http2/connection.py": ("http/2 data", "http/2 requests", "http/2 control"),
    "http2/control_frames.py": ("http/2 control",),
    "streams/rest_head.py": ("header block", "http/2 requests"),
    "streams/served_connection.py": ("http/2 data", "grpc calls"),
    "texts/bodies.py": (*(f"texts {form}" for form in FORMS), "completion", "chat"),
    "v1/request_context.py": ("v1 asking",),
    "v1/forwarded.py": ("v1 forwarded",),
    "v1/request.py": ("v1 fixed", "v1 untyped", "v1 asking untyped"),
    "v2/converted_input.py": ("v2 all",),
    "v2/input.py": ("v2 fixed", "v2 two"),
    "v2/request_text_cache.py": ("v2 fixed",),
    "v2/number_request.py": ("v2 fixed",),
    "v2/request.py": ("v2 two", "v2 asking"),
    "v2/shared_memory.py": ("registration",),
}
"""Targets that lead to each module."""
OTHERS: Final = {
    "offload/messages.py": "the process for large bodies, which is this frontend's own",
    "client/client.py": "a program's own values, on its host",
    "client/arrays.py": "the engine's results, in a program on its host",
    "codec/outcome.py": "what a model server answered, of a bounded length",
    "codec/resumption.py": "a model's results, and a request that this process has laid out",
    "generation/offloaded_prompts.py": "the model table",
    "generation/text_generator.py": "a file of the model's directory",
    "grpc/answer.py": "a model's results",
    "grpc/part_sheet.py": "a model's results",
    "grpc/messages.py": "a constant of the source",
    "http/connection_limit.py": "dropped unread",
    "metrics/control_keys.py": "one header at the control address",
    "payloads/events.py": "a body in the sender of the payload log, whether it is JSON or not",
    "payloads/messages.py": "what a frontend has written for the sender of the payload log",
    "proxy/agent_probe.py": "a variable of the operator's environment",
    "request/offload.py": "the model table",
    "request/load_override.py": "a parameter of a control request, of 64 KiB at most",
    "texts/classifying.py": "a model's results",
    "texts/offloaded_texts.py": "the model table",
    "texts/reranking.py": "a model's results",
    "texts/rows.py": "a model's results",
    "texts/vectors.py": "a model's results",
    "tracing/messages.py": "what the operator's collector of spans answered",
    "tracing/sending.py": "the operator's environment",
    "v1/answer.py": "a model's results",
    "v1/offloaded_answers.py": "the model table",
    "v2/answer.py": "a model's results",
    "v2/generate.py": "V2's answer, which it writes anew",
    "v2/offloaded_answers.py": "the model table",
}
"""Source of the bytes that each other module parses."""


def parses(tree: ast.AST) -> Iterator[str]:
    """Yield the names in a module that parse or receive bytes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in RECEIVES:
            yield node.name
        elif isinstance(node, ast.Attribute) and (
            node.attr in PARSES or (node.attr in RECEIVES and ast.unparse(node.value) == "req")
        ):
            yield node.attr
        elif isinstance(node, ast.Name) and node.id in PARSES and isinstance(node.ctx, ast.Load):
            yield node.id


def found() -> set[str]:
    folder = ROOT / "frontend"
    return {
        file.relative_to(folder).as_posix()
        for file in folder.rglob("*.py")
        if any(parses(ast.parse(file.read_text())))
    }


def test_every_module_that_parses_is_listed() -> None:
    assert found() == READ_BY.keys() | OTHERS.keys()
    assert not READ_BY.keys() & OTHERS.keys()


@pytest.mark.parametrize("module", READ_BY)
def test_a_module_that_parses_foreign_bytes_is_a_target(module: str) -> None:
    assert set(READ_BY[module]) <= {*TARGETS, *CONNECTIONS}


@pytest.mark.parametrize(
    "source",
    [
        "from orjson import loads\ndef read(body): return loads(body)",
        "async def read(req): return [piece async for piece in req.stream]",
        "class Protocol:\n    def data_received(self, data): ...",
        "read = Message.FromString",
    ],
)
def test_a_new_decoder_is_found(source: str) -> None:
    assert any(parses(ast.parse(source)))


def test_a_module_that_parses_nothing_is_no_target() -> None:
    assert not any(parses(ast.parse("def read(resp): return resp.stream")))
