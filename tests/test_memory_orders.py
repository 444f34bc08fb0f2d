"""The column "order" of the descriptors, held against the sources and against what is proven.

A word that publishes others is stored with release and loaded with acquire wherever the sources
name it; `EXCEPTIONS` says where not, and why. `PROVEN` names the proof of each, in which an order
that is left out is found.
"""

import ast
from collections.abc import Iterator
from typing import Final

import pytest
from metric_publications import METRIC_PUBLICATIONS
from record_publications import RECORD_PUBLICATIONS
from slot_publications import SLOT_PUBLICATIONS
from sources import Module, breaks, modules
from word_tables import RECORDS, table

PLAIN_ORDERS: Final = {"release", "full", "relaxed"}
ORDERED: Final = {
    f"{record}.{word.name}"
    for record, kind in RECORDS.items()
    for word in table(kind)
    if word.order in ("release", "full")
}
PROVEN: Final = {
    "HeaderWords.MAGIC": "tests/local/test_litmus.py: MP+rel+acq; it is read through a file",
    "HeaderWords.MODEL_TABLE": "the model table",
    "HeaderWords.RING_COLLECTOR": "tests/local/test_doorbell_interleavings.py: without its fence",
    "LaneWords.MODEL_TABLE": "a lane that follows the model table",
    "WorkerWords.STATE": "a worker that is ready",
    "CostProfileWords.COUNT": "a cost profile",
    "ModelWords.TAKES": "a model that refuses",
    "ModelWords.STATE": "a model that is ready",
    "ScalingWords.TAG": "the number of workers of a model that begins",
    "ScalingWords.FAILED": "a start that failed",
    "TallyWords.TAG": "counters of an account that begins: the same order, by numpy",
    "RequestRecordWords.SEQUENCE": "the record of a request",
    "RingWords.TAIL": "items of a ring",
    "RingWords.HEAD": "items of a ring",
    "RegionWords.STAMP": "a region of clients' memory",
    "SlotWords.CONTROL": "a request found in its slot",
    "SlotWords.DONE": "an answer found in its slot",
    "SlotWords.PARTS_TAKEN": "parts of an answer",
    "SlotWords.PARTS_END": "parts of an answer",
    "OwnMetricWords.COPY": "the metrics of a model's code",
    "AskingWords.SERVER": "a worker's request to a model server",
    "UpstreamWords.TAG": "a model server that a worker knows",
}
EXCEPTIONS: Final = {
    # A look whether anything has changed; `ModelTable.read` then loads with acquire.
    "frontend.request.models": {"HeaderWords.MODEL_TABLE", "LaneWords.MODEL_TABLE"},
    "frontend.request.service": {"HeaderWords.MODEL_TABLE"},
    "frontend.request.pipeline": {"HeaderWords.MODEL_TABLE"},
    "engine.collector.model_pool": {"HeaderWords.MODEL_TABLE"},
    # The reader alone stores it, or a dead predecessor did.
    "engine.collector.health": {"ModelWords.STATE"},
    "shm.model_metrics": {"OwnMetricWords.COPY"},
    "shm.parts": {"SlotWords.PARTS_END", "SlotWords.PARTS_TAKEN"},
    "shm.scalings": {"ScalingWords.TAG", "ScalingWords.FAILED"},
    "shm.segment": {"WorkerWords.STATE"},
    # Also stores that say that there is nothing; and an array, behind fences.
    "shm.tallies": {"TallyWords.TAG"},
    "shm.upstreams": {"AskingWords.SERVER", "UpstreamWords.TAG"},
    # Behind a fence or a ring's TAIL; or in front of a store that releases.
    "shm.slot_answers": {"SlotWords.CONTROL", "SlotWords.DONE"},
    "shm.engine_slots": {"SlotWords.DONE"},
    "shm.model_readiness": {"ModelWords.STATE"},
    "shm.readiness": {"ModelWords.TAKES"},
    # Figures and states for people: nothing else is loaded because of them.
    "frontend.metrics.exposition": {"RingWords.HEAD", "RingWords.TAIL", "WorkerWords.STATE"},
    "frontend.metrics.model_metrics": {"WorkerWords.STATE"},
    "shm.snapshot.occupancy": {
        "SlotWords.CONTROL",
        "SlotWords.DONE",
        "RingWords.HEAD",
        "RingWords.TAIL",
    },
    "shm.snapshot.status": {"WorkerWords.STATE"},
}
"""Modules, and the words that they may touch without the order."""
ACQUIRED, RELEASED = "load_acquire", "store_release"


def unordered(module: Module) -> Iterator[str]:
    """Accesses to a word that publishes others which are no acquire and no release."""
    named = Names(module.tree)
    for node, word in named.accesses():
        wanted = RELEASED if isinstance(node.ctx, ast.Store) else ACQUIRED
        base = ast.unparse(node.value)
        if (
            word in ORDERED
            and not base.endswith(wanted)
            and word not in EXCEPTIONS.get(module.name.removeprefix("ringbatch."), ())
            and "RING_COLLECTOR" not in word
        ):
            yield f"line {node.lineno}: {word} through {base}, which is no {wanted}"


class Names(ast.NodeVisitor):
    """Names of a module that stand for the number of a word, where they are bound."""

    def __init__(self, tree: ast.AST) -> None:
        self._scopes: list[dict[str, str]] = [{}]
        self._found: list[tuple[ast.Subscript, str]] = []
        # Twice: a method may come before the one that binds its attribute.
        self.visit(tree)
        self._found.clear()
        self.visit(tree)

    def accesses(self) -> list[tuple[ast.Subscript, str]]:
        return self._found

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._scopes.append({})
        self.generic_visit(node)
        self._scopes.pop()

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            self._bind(target, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.generic_visit(node)
        if node.value is not None:
            self._bind(node.target, node.value)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.generic_visit(node)
        if not isinstance(node.slice, ast.Slice) and (word := self._word_in(node.slice)):
            self._found.append((node, word))

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one, its in zip(target.elts, value.elts, strict=False):
                self._bind(one, its)
            return
        # Sums and products of numbers are numbers of words; what is loaded from one is none.
        is_number = isinstance(value, ast.Name | ast.Attribute | ast.BinOp)
        if is_number and (word := self._word_in(value)):
            name = ast.unparse(target)
            self._scopes[0 if name.startswith("self.") else -1][name] = word

    def _word_in(self, expression: ast.expr) -> str | None:
        for node in ast.walk(expression):
            if isinstance(node, ast.Name | ast.Attribute):
                text = ast.unparse(node)
                record, _, word = text.rpartition(".")
                if record in RECORDS and word.isupper():
                    return text
                for scope in reversed(self._scopes):
                    if text in scope:
                        return scope[text]
        return None


@pytest.mark.parametrize("record", RECORDS)
def test_each_word_has_an_order_or_the_word_that_publishes_it(record: str) -> None:
    words = {word.name for word in table(RECORDS[record])} | {"HEAD"}
    orders = {word.order for word in table(RECORDS[record])}
    assert orders <= PLAIN_ORDERS | words


@pytest.mark.parametrize("record", RECORDS)
def test_a_word_that_publishes_another_releases(record: str) -> None:
    orders = {word.name: word.order for word in table(RECORDS[record])}
    publishing = set(orders.values()) - PLAIN_ORDERS - {"HEAD"}
    assert {orders[word] for word in publishing} <= {"release"}


def test_every_access_to_a_word_that_publishes_others_has_its_order() -> None:
    found = [f"{module.name}: {fault}" for module in modules() for fault in unordered(module)]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "words[first + SlotWords.DONE] = 1",
        "_DONE = SlotWords.DONE\ndef f():\n    return self._words[first + _DONE]",
        "def f():\n    done = first + SlotWords.DONE\n    words[done + 1] = 2",
        "class A:\n    def f(self):\n        return words[self._d]\n"
        "    def __init__(self):\n        self._d = SlotWords.DONE + 1",
        "a, b = first + SlotWords.CONTROL, 1\nself._words[a]",
        "self._store_release[first + SlotWords.DONE]",
    ],
)
def test_an_access_without_its_order_is_reported(source: str) -> None:
    assert breaks(unordered, "ringbatch.shm.slot", source)


@pytest.mark.parametrize(
    "source",
    [
        "self._store_release[first + SlotWords.DONE] = 1",
        "found = load_acquire[first + SlotWords.DONE]",
        "words[first + SlotWords.ROWS] = 1",
    ],
)
def test_an_access_with_its_order_is_not_reported(source: str) -> None:
    assert not breaks(unordered, "ringbatch.shm.slot", source)


def test_each_order_is_proven() -> None:
    assert set(PROVEN) == ORDERED
    published = SLOT_PUBLICATIONS | RECORD_PUBLICATIONS | METRIC_PUBLICATIONS
    named = {proof.partition(":")[0] for proof in PROVEN.values()}
    missing = {name for name in named if not name.startswith("tests/")} - set(published)
    assert missing == set()
    assert (
        set(published)
        - named
        - {
            "a row that a worker joins",
            "counters of an account that ends",
        }
        == set()
    )


def test_every_exception_is_needed() -> None:
    found = {module.name.removeprefix("ringbatch."): Names(module.tree) for module in modules()}
    for name, words in EXCEPTIONS.items():
        assert words <= {word for _, word in found[name].accesses()}, name
