"""The docstrings of the descriptors are the specification; here they are held against the
constants, and against what their table of caches promises."""

from itertools import pairwise, permutations
from struct import Struct

import pytest
from word_tables import HOT, NO_WORDS, OFTEN, RECORDS, Word, constants, table, words_of

from ringbatch.shm.descriptors import (
    LAYOUT_VERSION,
    MAGIC_VALUE,
    PAIR,
    REQUEST_RECORD_DETAILS,
    CostProfileWords,
    HeaderWords,
    ModelWords,
    RequestRecordWords,
    RingWords,
    SlotWords,
    TallyWords,
)
from ringbatch.shm.layout import WORD
from ringbatch.shm.region_words import RegionWords
from ringbatch.shm.slot_structs import (
    ANSWER_DETAILS,
    OUTCOME,
    OUTCOME_DETAILS,
    PACKED_DETAILS,
    REQUEST_HEADER,
    REQUEST_SIZES,
    SIZES_AND_OFFSETS,
)


def neighbours(rows: list[Word]) -> list[tuple[Word, Word]]:
    """Words that share a pair, each with each other."""
    pairs = permutations(rows, 2)
    return [two for two in pairs if two[0].number // PAIR == two[1].number // PAIR]


def crowded(rows: list[Word]) -> list[tuple[str, str]]:
    """Words that are loaded often, each with a neighbour that is stored more often than itself."""
    return [
        (word.name, other.name)
        for word, other in neighbours(rows)
        if word.loaded in HOT and OFTEN.index(other.stored) > OFTEN.index(word.stored)
    ]


@pytest.mark.parametrize("record", RECORDS.values())
def test_the_table_is_that_of_the_constants(record: type) -> None:
    words = {name: number for name, number in constants(record).items() if name not in NO_WORDS}
    assert {word.name: word.number for word in table(record)} == words


@pytest.mark.parametrize("record", RECORDS.values())
def test_words_are_in_order_and_within_their_record_of_whole_pairs(record: type) -> None:
    rows = table(record)
    assert all(word.number < following.number for word, following in pairwise(rows))
    size = getattr(record, "SIZE", PAIR * (rows[-1].number // PAIR + 1))
    assert size % PAIR == 0
    assert rows[-1].number < size
    assert {word.stored for word in rows} | {word.loaded for word in rows} <= set(OFTEN)


@pytest.mark.parametrize("record", RECORDS.values())
def test_words_with_different_writers_share_no_pair(record: type) -> None:
    assert all(word.stored_by == other.stored_by for word, other in neighbours(table(record)))


@pytest.mark.parametrize("record", RECORDS.values())
def test_a_frequently_loaded_word_shares_no_pair_with_one_stored_more_often(record: type) -> None:
    assert crowded(table(record)) == []


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        ("32 RING collector batch frontends request|33 NS collector step everyone rarely", True),
        ("32 RING collector batch frontends request|48 NS collector step everyone rarely", False),
        ("0 READY collector rarely frontends request|1 STUCK collector batch all rarely", True),
        ("0 READY collector rarely frontends rarely|1 STUCK collector batch all rarely", False),
    ],
)
def test_a_word_that_others_lose_with_each_store_beside_it_is_found(rows: str, wrong: bool) -> None:
    text = "word  name\n----  ----\n" + rows.replace("|", "\n")
    assert bool(crowded(words_of(text))) is wrong


def test_a_profile_has_room_for_its_trials() -> None:
    end = CostProfileWords.TRIALS + CostProfileWords.MAX_TRIALS * CostProfileWords.TRIAL_SIZE
    assert CostProfileWords.SIZE - PAIR < end <= CostProfileWords.SIZE


@pytest.mark.parametrize(
    ("struct", "first", "last"),
    [
        (REQUEST_HEADER, SlotWords.MODEL, SlotWords.ACCOUNT),
        (REQUEST_SIZES, SlotWords.MODEL, SlotWords.RESULT_CAPACITY),
        (SIZES_AND_OFFSETS, SlotWords.MODEL, SlotWords.RESULT_OFFSET),
        (ANSWER_DETAILS, SlotWords.RESULT_BYTES, SlotWords.FINISHED_NS),
        (PACKED_DETAILS, SlotWords.RESULT_BYTES, SlotWords.FINISHED_NS),
        (OUTCOME, SlotWords.DONE, SlotWords.BATCH),
        (OUTCOME_DETAILS, SlotWords.DONE, SlotWords.FINISHED_NS),
        (REQUEST_RECORD_DETAILS, RequestRecordWords.ENDED_NS, RequestRecordWords.ID + 15),
    ],
)
def test_a_structure_is_the_run_of_words_that_it_says(
    struct: Struct, first: int, last: int
) -> None:
    assert struct.size == (last - first + 1) * WORD


def test_the_details_of_an_outcome_begin_with_the_next_word() -> None:
    packed = b"".join(n.to_bytes(WORD, "little") for n in range(11))
    names = [SlotWords.DONE + n for n in OUTCOME_DETAILS.unpack(packed)]
    assert names[0] == SlotWords.BATCH_ROWS
    assert names[-1] == SlotWords.FINISHED_NS


def test_the_numbers_of_version_32() -> None:
    """A change of a number here changes the layout, and needs another version."""
    assert LAYOUT_VERSION == 32
    assert MAGIC_VALUE.to_bytes(8, "little") == b"RNGBTCH1"
    assert constants(HeaderWords) == {
        "MAGIC": 0,
        "VERSION": 1,
        "SEGMENT_BYTES": 2,
        "LANES": 3,
        "SLOTS": 4,
        "LANE_BYTES": 5,
        "WORKERS": 6,
        "MODELS": 7,
        "MODEL_TABLE_BYTES": 8,
        "IDENTITY": 9,
        "CLIENT_LANES": 10,
        "MODEL_CONTROL": 11,
        "READY_NS": 12,
        "TRACED": 13,
        "PORT": 14,
        "FAIR_SHARES": 15,
        "DRAINING": 16,
        "MODEL_TABLE": 17,
        "COLLECTOR_ERRNO": 18,
        "STOPPING": 19,
        "RING_COLLECTOR": 32,
        "COLLECTOR_NS": 48,
        "SIZE": 64,
    }
    assert constants(ModelWords) == {
        "READY": 0,
        "TAKES": 1,
        "UNSTEADY_NS": 2,
        "DEATHS": 3,
        "AWAITED": 4,
        "STATE": 5,
        "ANSWER_NS": 16,
        "ROW_NS": 17,
        "LEAST_NS": 18,
        "ACCOUNT": 19,
        "MOST_NS": 20,
        "STUCK_NS": 32,
        "SIZE": 48,
    }
    assert constants(TallyWords) == {"TAG": 0, "PROTOCOLS": 1, "SIZE": 336}
    assert constants(RequestRecordWords) == {
        "SEQUENCE": 0,
        "ENDED_NS": 1,
        "ACCOUNT": 2,
        "PROTOCOL": 3,
        "CODE": 4,
        "INSTANCES": 5,
        "PHASES": 6,
        "BATCH": 14,
        "BATCH_ROWS": 15,
        "REASON": 16,
        "ATTEMPTS": 17,
        "SHARE_NS": 18,
        "COPY_NS": 19,
        "TRACE": 20,
        "PARENT": 22,
        "SPAN": 23,
        "ID_BYTES": 24,
        "ID": 25,
        "SIZE": 48,
    }
    assert constants(RingWords) == {"TAIL": 0, "HEAD": 16, "ITEMS": 32}
    assert constants(RegionWords) == {
        "STAMP": 0,
        "OFFSET": 1,
        "BYTES": 2,
        "DEVICE": 3,
        "INODE": 4,
        "NAME_BYTES": 5,
        "KEY_BYTES": 6,
        "TEXT": 7,
        "SIZE": 80,
    }
    assert constants(SlotWords) == {
        "CONTROL": 0,
        "MODEL": 1,
        "ROWS": 2,
        "REQUEST_BYTES": 3,
        "KEY_BYTES": 4,
        "RESULT_CAPACITY": 5,
        "REQUEST_OFFSET": 6,
        "RESULT_OFFSET": 7,
        "ACCEPTED_NS": 8,
        "DEADLINE_NS": 9,
        "ACCOUNT": 10,
        "PARTS_OF": 11,
        "PARTS_FROM": 12,
        "PARTS_TAKEN": 13,
        "DONE": 16,
        "RESULT_BYTES": 17,
        "BATCH": 18,
        "BATCH_ROWS": 19,
        "REASON": 20,
        "DISPATCHED_NS": 21,
        "BEGAN_NS": 22,
        "GATHERED_NS": 23,
        "RAN_NS": 24,
        "ATTEMPTS": 25,
        "FINISHED_NS": 26,
        "ANSWER_START": 27,
        "OVERTAKEN": 28,
        "OVERTAKEN_NS": 29,
        "PARTS_END": 30,
        "JOINED": 31,
        "SIZE": 32,
    }
    others = {
        name: constants(record)
        for name, record in RECORDS.items()
        if record
        not in (
            HeaderWords,
            ModelWords,
            RequestRecordWords,
            RingWords,
            RegionWords,
            SlotWords,
            TallyWords,
        )
    }
    assert others == {
        "LaneWords": {"MODEL_TABLE": 0, "SERVING": 1, "PAYLOADS": 2, "SIZE": 16},
        "WorkerWords": {
            "STATE": 0,
            "PID": 1,
            "MODEL": 2,
            "SERVERS": 3,
            "SERVERS_DOWN": 4,
            "FAILING": 5,
            "LEAD_NS": 6,
            "SIZES": 7,
            "ERRNO": 16,
            "ENDS": 17,
            "AGAIN_NS": 18,
            "LIVE_ROWS": 32,
            "MOST_ROWS": 33,
            "LIVE_COST": 34,
            "SIZE": 48,
        },
        "AskingWords": {"SERVER": 0, "SINCE_NS": 1, "SIZE": 16},
        "DeviceNoteWords": {"UUID_HIGH": 0, "UUID_LOW": 1, "TEXT": 2, "SIZE": 64},
        "UpstreamWords": {
            "TAG": 0,
            "NAME": 1,
            "BATCHES": 32,
            "FAILURES": 33,
            "REFUSALS": 34,
            "FAILED_IN_A_ROW": 35,
            "ANSWERED_NS": 36,
            "FAILED_NS": 37,
            "HELD_UNTIL_NS": 38,
            "TOOK_NS": 39,
            "LEARNED_NS": 40,
            "PROBED_NS": 41,
            "SIZE": 48,
        },
        "CostProfileWords": {
            "COUNT": 0,
            "TRIALS": 1,
            "TRIAL_SIZE": 3,
            "MAX_TRIALS": 127,
            "SIZE": 384,
        },
        "OwnMetricWords": {"COPY": 0, "COPIES": 16, "COPY_SIZE": 2064, "SIZE": 4144},
        "ScalingWords": {
            "TAG": 0,
            "WANTED": 1,
            "FAILED": 2,
            "AGAIN_NS": 3,
            "COUNTS": 4,
            "RESTARTS": 16,
            "SIZE": 32,
        },
        "RegistryWords": {"STAMP": 0, "SIZE": 16},
    }
