"""A request over HTTP/2: its head, its body in pieces and windows, what cannot be served."""

from collections.abc import Iterator

from http2_client import GET, POST, Client, stuck
from http2_harness import GREETING, data, headers
from http_harness import MAX_REQUEST_BYTES, Connection, scenario

from ringbatch.frontend.http.body_budget import BodyBudget
from ringbatch.frontend.http.phases import BODY_TIMEOUT_S


@scenario
async def test_a_request_is_the_applications_and_its_answer_the_clients() -> None:
    client = Client()
    fields = (*POST, ("cookie", "a=1"), ("cookie", "b=2"), ("content-type", "x"))
    answer = await client.ask(b"body", fields)
    assert (answer.status, answer.body, answer.ended) == (200, b"falcon", True)
    assert answer.fields["date"] == "today"
    assert client.connection.seen == [("POST /v1/models/m:predict", b"body")]
    (seen,) = client.connection.headers
    assert seen == {b"host": b"here", b"content-type": b"x", b"cookie": b"a=1; b=2"}
    assert (await client.ask(fields=GET)).status == 200
    assert client.connection.handed_over == 1


@scenario
async def test_it_may_come_byte_by_byte() -> None:
    client = Client()
    number = client.begin()
    client.h2.send_data(number, b"body", end_stream=True)
    for byte in client.h2.data_to_send():
        client.connection.feed(bytes((byte,)))
    await client.take()
    assert client.answers[number].body == b"falcon"


@scenario
async def test_a_body_of_several_windows_and_one_without_a_length() -> None:
    client = Client()
    body = bytes(3 * MAX_REQUEST_BYTES + 1)
    assert (await client.ask(body)).status == 200
    assert client.connection.seen[0][1] == body


@scenario
async def test_an_unservable_request_is_refused_on_its_stream_alone() -> None:
    client = Client()
    many = tuple((f"x-{number}", "1") for number in range(300))
    for fields, status, words in (
        ((*GET, *many), 431, b"more than 256 lines"),
        ((*GET[:2], (":path", "/\u00e9"), *GET[3:]), 400, b":path must be a path"),
        ((*GET[:2], (":path", "http://x/"), *GET[3:]), 400, b":path must be a path"),
        (((":method", "GET /x HTTP/1.1"), *GET[1:]), 400, b":method must be a word"),
    ):
        answer = await client.ask(fields=fields)
        assert answer.status == status
        assert words in answer.body
        assert answer.fields["x-request-id"]
    assert (await client.ask()).status == 200
    assert [code for _, code, _ in client.connection.ended] == [431, 400, 400, 400]
    assert (
        await client.ask(fields=((":method", "OPTIONS"), GET[1], (":path", "*"), GET[3]))
    ).status


@scenario
async def test_a_body_that_stops_is_408_and_costs_the_others_nothing() -> None:
    client = Client()
    number = client.begin()
    client.h2.send_data(number, b"half")
    await client.send()
    await client.tick(BODY_TIMEOUT_S - 1)
    assert not client.answers[number].fields
    assert (await client.ask()).status == 200
    await client.tick(3)
    assert client.answers[number].status == 408
    assert b"the body did not come within 30 s" in client.answers[number].body
    assert (await client.ask()).status == 200
    bodies = [body for _, body in client.connection.seen]
    assert bodies == [b"", b"half", b""]
    assert client.answers[number].ended


@scenario
async def test_bytes_read_ahead_count_in_the_budget() -> None:
    budget = BodyBudget(100_000)
    client = Client(budget=budget, served=stuck)
    numbers = [client.begin() for _ in range(3)]
    for number in numbers:
        for _ in range(3):
            client.h2.send_data(number, bytes(16_000))
        await client.send()
    statuses = [client.answers[number].fields.get(":status") for number in numbers]
    assert statuses == [None, None, "503"]
    for number in numbers[:2]:
        client.h2.reset_stream(number)
    await client.send()
    budget.take(100_000)


@scenario
async def test_bytes_that_were_read_are_not_held_any_more() -> None:
    client = Client(budget=BodyBudget(100_000))
    assert (await client.ask(bytes(400_000))).status == 200


class Read(list[bytes]):
    """Pieces of a body; counts how often they are gone through."""

    times = 0

    def __iter__(self) -> Iterator[bytes]:
        self.times += 1
        return super().__iter__()


@scenario
async def test_waiting_pieces_are_not_gone_through_for_every_new_piece() -> None:
    connection = Connection(http2=True, served=stuck)
    connection.feed(GREETING + headers(1))
    await connection.settle()
    stream = connection.transport.protocol.core.streams[1]
    pieces = stream.pieces = Read()
    for _ in range(50):
        connection.feed(data(1, bytes(33)))
    assert (len(pieces), pieces.times) == (50, 0)
    connection.transport.abort()
    await connection.settle()


@scenario
async def test_a_body_of_a_known_length_is_whole_before_its_end_has_come() -> None:
    client = Client()
    number = client.begin((*POST, ("content-length", "4")))
    client.h2.send_data(number, b"body")
    await client.send()
    answer = client.answers[number]
    assert (answer.body, answer.ended) == (b"falcon", True)
    client.h2.end_stream(number)
    await client.send()
    assert answer.reset is None


@scenario
async def test_a_client_that_waits_to_be_asked_for_the_body_is_asked() -> None:
    client = Client()
    number = client.begin((*POST, ("expect", "100-continue")))
    await client.send()
    answer = client.answers[number]
    assert answer.informed == ["100"]
    client.h2.send_data(number, b"body", end_stream=True)
    await client.send()
    assert answer.body == b"falcon"
