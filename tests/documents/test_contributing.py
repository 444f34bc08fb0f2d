"""CONTRIBUTING.md leads to the code: each file and name in it exists."""

import re
from typing import Final

from documents.pages import ROOT, section, table
from test_architecture import defined

PAGE: Final = "CONTRIBUTING.md"


def test_every_file_of_the_reading_order_exists() -> None:
    names = re.findall(r"`(\w+/[\w/]*(?:\.\w+)?)`", section(PAGE, "Where things are"))
    assert len(names) >= 14
    assert [name for name in names if not (ROOT / name).exists()] == []


WHERE: Final = {
    "gzip decoded": "zlib.decompressobj",
    "a batch closed": "def decide(",
    "a dead worker's batch taken back": "def regroup(",
    "the retry limit": "MAX_DEATHS = ",
    "systemd's watchdog fed": "WATCHDOG",
    "V2's binary header read": "Inference-Header-Content-Length",
    "a metric named": "model_further_parts",
}
"""Subjects that a newcomer looks for, and a text in the file that the table names for each."""


def test_everything_is_at_the_named_place() -> None:
    places = {subject: place.strip("`") for subject, place in table(PAGE, "Where is ...?")}
    for subject, place in places.items():
        path, _, name = place.partition(":")
        assert not name or name in defined(ROOT / path), f"{subject}: {place}"
    for subject, holds in WHERE.items():
        assert holds in (ROOT / places[subject].partition(":")[0]).read_text(), subject
