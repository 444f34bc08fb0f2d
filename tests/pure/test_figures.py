"""Tests' parser of a metrics page: it reads the page as prometheus_client does."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from serve.figures import figures

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=9)


@given(texts, texts, st.floats(allow_nan=False))
def test_a_page_is_read_as_prometheus_client_reads_it(one: str, other: str, value: float) -> None:
    registry = CollectorRegistry()
    Counter("asked", "Requests.", ["model", "code"], registry=registry).labels(one, other).inc(3)
    Gauge("live", "Rows.", registry=registry).set(value)
    Histogram("took", "Seconds.", ["model"], registry=registry).labels(one).observe(0.1)
    page = generate_latest(registry).decode()
    wanted = [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    ]
    assert [tuple(sample) for sample in figures(page)] == wanted
    assert len(wanted) > 10
