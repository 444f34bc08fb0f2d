"""Metrics as text, read by another's parser."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as read_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as read_text

from ringbatch.frontend.metrics.families import OPEN, TEXT, Family, encoded, gauge

OPENMETRICS = "application/openmetrics-text; version=1.0.0,text/plain;q=0.5"


def of_all_kinds() -> list[Family]:
    counter = Family("counter", "ringbatch_things", "Things that were.", ["model", "code"])
    counter.add(["m", "200"], 3)
    counter.add(["m", "500"], 0.25)
    times = Family("histogram", "ringbatch_times_seconds", "How long.", ["model"])
    times.add_histogram(["m"], ["0.5", "1", "+Inf"], [2, 0, 1], 4.5)
    info = Family("info", "ringbatch_build", "What runs.", ["version"])
    info.add(["1.2"], 1)
    return [counter, times, info, gauge("ringbatch_level", "How high.", 7)]


@pytest.mark.parametrize(("accepted", "content_type"), [("", TEXT), (OPENMETRICS, OPEN)])
def test_the_written_families_are_read(accepted: str, content_type: str) -> None:
    text, found = encoded(of_all_kinds(), accepted)
    assert found == content_type
    read = read_openmetrics if found == OPEN else read_text
    families = list(read(text.decode()))
    kinds = {family.name: family.type for family in families}
    assert kinds["ringbatch_things"] == "counter"
    assert kinds["ringbatch_times_seconds"] == "histogram"
    assert kinds["ringbatch_level"] == "gauge"
    assert {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    } == {
        ("ringbatch_things_total", "m", "200"): 3,
        ("ringbatch_things_total", "m", "500"): 0.25,
        ("ringbatch_times_seconds_bucket", "m", "0.5"): 2,
        ("ringbatch_times_seconds_bucket", "m", "1"): 2,
        ("ringbatch_times_seconds_bucket", "m", "+Inf"): 3,
        ("ringbatch_times_seconds_count", "m"): 3,
        ("ringbatch_times_seconds_sum", "m"): 4.5,
        ("ringbatch_build_info", "1.2"): 1,
        ("ringbatch_level",): 7,
    }


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=20))
def test_any_name_of_a_model_is_its_label(name: str) -> None:
    counter = Family("counter", "ringbatch_things", "Things.", ["model"])
    counter.add([name], 1)
    (family,) = read_text(encoded([counter], "")[0].decode())
    assert [sample.labels for sample in family.samples] == [{"model": name}]


@given(
    st.sets(st.floats(-9, 9), min_size=1, max_size=4),
    st.lists(st.integers(0, 9), min_size=5, max_size=5),
    st.floats(-1e9, 1e9),
)
def test_every_distribution_is_read_by_a_strict_parser(
    bounds: set[float], counts: list[int], total: float
) -> None:
    """OpenMetrics has no sum where values below 0 may make it fall."""
    ascending = [*map(repr, sorted(bounds)), "+Inf"]
    times = Family("histogram", "ringbatch_times", "How long.", ["model"])
    times.add_histogram(["m"], ascending, counts[: len(ascending)], total)
    other = Family("histogram", "ringbatch_times", "How long.", ["model"])
    other.add_histogram(["n"], ascending, counts[: len(ascending)], abs(total))
    times.take(other)
    (open_,) = read_openmetrics(  # type: ignore[no-untyped-call]
        encoded([times], OPENMETRICS)[0].decode()
    )
    (plain,) = read_text(encoded([times], "")[0].decode())
    falls = total < 0 or min(bounds) < 0
    names = [sample.name for sample in open_.samples if sample.labels["model"] == "m"]
    assert ("ringbatch_times_sum" in names) is not falls
    assert names.count("ringbatch_times_bucket") == len(ascending)
    sums = [sample.value for sample in plain.samples if sample.name == "ringbatch_times_sum"]
    assert sums == [total, abs(total)]
