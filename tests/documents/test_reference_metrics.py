"""The table of metrics has every family, with the type, labels and help text of the code."""

import os
import re
from itertools import chain

import pytest
from documents.metric_families import families
from documents.pages import section, text_of

from ringbatch.shm.counters import RestartCase
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Reason
from ringbatch.shm.tallies import Protocol

METRICS = "docs/reference/metrics.md"


def test_every_family_has_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Segment, "serving_lanes", lambda _: 2)
    monkeypatch.setattr(Segment, "pid", os.getpid())
    expected = [
        f"| `{f._sample}` | {f.kind} | {', '.join(f'`{x}`' for x in f._labels)} | {f.help_text} |"
        for f in families()
    ]
    rows = re.findall(r"^\| `ringbatch_.*$", text_of(METRICS), re.MULTILINE)
    assert sorted(rows) == sorted(expected)


def test_the_values_of_labels_are_those_of_the_code() -> None:
    named = {*re.findall(r"`(\w+)`", section(METRICS, "Labels"))}
    enums = chain(Protocol, Reason, RestartCase)
    assert [member.name for member in enums if member.name.lower() not in named] == []
