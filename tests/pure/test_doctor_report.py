"""Doctor's report: printed findings."""

import json

import pytest

from ringbatch.engine.doctor.facts import Facts, Kernel, Package, Software
from ringbatch.engine.doctor.findings import Finding, Level, sized
from ringbatch.engine.doctor.report import as_json, text, versions

FINDINGS = [
    Finding("clock", Level.OK, "tsc", "it is looked at"),
    Finding("dev-shm", Level.ERROR, "small", "nothing fits", "make it larger"),
    Finding("cpus", Level.NOTE, "many", "they are"),
]
SOFTWARE = Software(
    ringbatch="1.2.3",
    compiled=True,
    python=(3, 11, 7),
    implementation="CPython",
    packages=(Package(name="grpcio", version=None, bounds="", extra="grpc"),),
)


def test_a_sound_check_takes_a_line_and_another_has_reason_and_remedy() -> None:
    assert text(FINDINGS).splitlines() == [
        "ok       clock    tsc",
        "error    dev-shm  small",
        "                  why: nothing fits",
        "                  do:  make it larger",
        "note     cpus     many",
        "                  why: they are",
        "",
        "1 error, 0 warnings, 1 note; 1 ok",
    ]


def test_long_words_are_wrapped_below_themselves() -> None:
    (first, second, *_) = text([Finding("a", Level.OK, "word " * 30, "")]).splitlines()
    assert len(first) <= 100
    assert second.startswith(" " * len("ok       a  ") + "word")


def test_programs_get_every_field_and_the_versions() -> None:
    facts = Facts(software=SOFTWARE, kernel=Kernel(system="Linux 6.1", machine="x86_64"))
    document = json.loads(as_json(FINDINGS, facts))
    assert document["findings"][1] == {
        "check": "dev-shm",
        "level": "error",
        "found": "small",
        "why": "nothing fits",
        "do": "make it larger",
    }
    assert [list(finding) for finding in document["findings"]] == [
        ["check", "level", "found", "why", "do"]
    ] * 3
    assert document["versions"] == {
        "ringbatch": "1.2.3 (compiled)",
        "python": "3.11.7",
        "grpcio": None,
        "kernel": "Linux 6.1",
    }


def test_of_nothing_known_there_are_no_versions() -> None:
    assert versions(Facts()) == {}


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 KiB"),
        (64 << 10, "64 KiB"),
        (4 << 20, "4.0 MiB"),
        (64 << 20, "64 MiB"),
        (8 << 30, "8192 MiB"),
        (24 << 30, "24 GiB"),
    ],
)
def test_sizes_are_shown_with_a_unit_that_fits(count: int, shown: str) -> None:
    assert sized(count) == shown
