"""Configurations of the model for SPIN, and controls, which are wrong on purpose."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

Defines = Mapping[str, int]


@dataclass(frozen=True)
class Configuration:
    """Configuration of the model: `defines` of slot.pml that differ from those written there.

    Attributes:
        about: its subject.
        comes_to_rest: look for an endless run instead of checking the assertions.
    """

    about: str
    defines: Defines
    comes_to_rest: bool = False


@dataclass(frozen=True)
class Control:
    """A model that is wrong in one respect.

    Attributes:
        about: in which.
        defines: what else happens; small, and enough to find it.
        breaks: the names of the properties that may be found broken.
    """

    about: str
    defines: Defines
    breaks: tuple[str, ...]


CONFIGURATIONS: Final = {
    "batches": Configuration(
        "requests alone and in batches of two, a worker's death, a second run",
        {"SLOTS": 2, "REQUESTS": 3, "WORKER_DEATHS": 1},
    ),
    "fatal": Configuration(
        "a request that takes two workers with it, beside one that does not",
        {"SLOTS": 2, "REQUESTS": 2, "WORKER_DEATHS": 2},
    ),
    "collector": Configuration(
        "the collector's death, the next one's takeover from workers that go on; a worker's death",
        {"REQUESTS": 2, "COLLECTOR_DEATHS": 1, "WORKER_DEATHS": 1},
    ),
    "collectors": Configuration(
        "two collectors' deaths, amid the takeover too",
        {"REQUESTS": 2, "COLLECTOR_DEATHS": 2},
    ),
    "takeover": Configuration(
        "the collector's death with two slots and batches of two",
        {"SLOTS": 2, "REQUESTS": 2, "COLLECTOR_DEATHS": 1},
    ),
    "wedge": Configuration(
        "a batch that runs too long, of which one collector knows and the next does not",
        {"REQUESTS": 2, "HANGS": 1, "COLLECTOR_DEATHS": 1},
    ),
    "frontends": Configuration(
        "two frontends' deaths, amid the adoption too, and a worker's",
        {"REQUESTS": 2, "FRONTEND_DEATHS": 2, "WORKER_DEATHS": 1},
    ),
    "adoption": Configuration(
        "a frontend's death with two slots in flight, and a worker's",
        {"SLOTS": 2, "REQUESTS": 2, "FRONTEND_DEATHS": 1, "WORKER_DEATHS": 1},
    ),
    "both": Configuration(
        "a frontend's death and the collector's, each amid the other's takeover",
        {"REQUESTS": 2, "FRONTEND_DEATHS": 1, "COLLECTOR_DEATHS": 1},
    ),
    "cancelling": Configuration(
        "a frontend that gives up, a collector that refuses; two slots",
        {"SLOTS": 2, "REQUESTS": 3, "CANCELS": 1, "EXPIRIES": 1},
    ),
    "leaving": Configuration(
        "frontends that give up whatever they sent, while no worker is ready; their death",
        {"READY_WORKERS": 0, "SLOTS": 2, "REQUESTS": 3, "CANCELS": 3, "FRONTEND_DEATHS": 1},
    ),
    "left": Configuration(
        "the same, with two collectors' deaths",
        {"READY_WORKERS": 0, "SLOTS": 2, "REQUESTS": 3, "CANCELS": 3, "COLLECTOR_DEATHS": 2},
    ),
    "chain": Configuration(
        "requests for a chain of two steps, in batches of two; a worker's death",
        {"LAST_STEP": 1, "SLOTS": 2, "REQUESTS": 2, "WORKER_DEATHS": 1},
    ),
    "chains": Configuration(
        "a chain of two steps, the collector's death, a worker's, a frontend that gives up",
        {
            "LAST_STEP": 1,
            "REQUESTS": 1,
            "COLLECTOR_DEATHS": 1,
            "WORKER_DEATHS": 1,
            "CANCELS": 1,
        },
    ),
    "hang": Configuration(
        "a batch that runs too long, a frontend that gives up, a worker's death",
        {"REQUESTS": 2, "HANGS": 1, "CANCELS": 1, "WORKER_DEATHS": 1},
    ),
    "parts": Configuration(
        "answers in parts or in one piece, a frontend that gives up, a worker's death",
        {"PARTS": 1, "REQUESTS": 2, "WORKER_DEATHS": 1, "CANCELS": 1},
    ),
    "streams": Configuration(
        "the same requests, two in a batch; a worker's death between their parts",
        {"PARTS": 1, "SLOTS": 2, "REQUESTS": 2, "WORKER_DEATHS": 1},
    ),
    "heirs": Configuration(
        "a frontend's death amid answers in parts",
        {"PARTS": 1, "REQUESTS": 2, "FRONTEND_DEATHS": 1},
    ),
    "roomy": Configuration(
        "the same, and a worker's death; completion rings of three words for each slot",
        # With two an answer is lost: README.md has the steps.
        {"PARTS": 1, "REQUESTS": 2, "FRONTEND_DEATHS": 1, "WORKER_DEATHS": 1, "COMPLETIONS": 3},
    ),
    "spoilt": Configuration(
        "a part is out, and neither its worker lives nor a collector that knew what that held",
        {
            "PARTS": 1,
            "SPOILT": 1,
            "REQUESTS": 1,
            "COLLECTOR_DEATHS": 1,
            "WORKER_DEATHS": 1,
            "CANCELS": 1,
        },
    ),
    "rest": Configuration(
        "no run goes on for ever, whoever is preferred",
        {"REQUESTS": 2, "WORKER_DEATHS": 1, "CANCELS": 1},
        comes_to_rest=True,
    ),
    "rows": Configuration(
        "rows that join and end between steps, in batches of two or alone; a worker's death",
        {"STEPS": 1, "SLOTS": 2, "REQUESTS": 2, "WORKER_DEATHS": 1, "CANCELS": 1},
    ),
    "places": Configuration(
        "a row joins while an earlier one of its slot is answered and not yet reported",
        {"STEPS": 1, "SLOTS": 2, "REQUESTS": 3},
    ),
    "joined": Configuration(
        "the collector's death amid rows, a worker's, and the next one of that number",
        {"STEPS": 1, "REQUESTS": 2, "COLLECTOR_DEATHS": 1, "WORKER_DEATHS": 1},
    ),
    "rejoined": Configuration(
        "two collectors' deaths and two workers', amid the takeover and amid a reclaim too",
        {"STEPS": 1, "REQUESTS": 1, "COLLECTOR_DEATHS": 2, "WORKER_DEATHS": 2},
    ),
    "group": Configuration(
        "the collector's death with two rows, of one batch or of two",
        {"STEPS": 1, "SLOTS": 2, "REQUESTS": 2, "COLLECTOR_DEATHS": 1},
    ),
    "late": Configuration(
        "a row that runs too long, of which one collector knows and the next does not",
        {"STEPS": 1, "REQUESTS": 2, "HANGS": 1, "COLLECTOR_DEATHS": 1},
    ),
    "owners": Configuration(
        "a frontend's death and the collector's amid rows, each amid the other's takeover",
        {"STEPS": 1, "REQUESTS": 2, "FRONTEND_DEATHS": 1, "COLLECTOR_DEATHS": 1},
    ),
    "tokens": Configuration(
        "rows that give parts, a frontend that gives up, the collector's death, a worker's",
        {
            "STEPS": 1,
            "PARTS": 1,
            "REQUESTS": 1,
            "COLLECTOR_DEATHS": 1,
            "WORKER_DEATHS": 1,
            "CANCELS": 1,
        },
    ),
    "unreadable": Configuration(
        "the same rows, and the ring of the dead worker makes no sense",
        {
            "STEPS": 1,
            "PARTS": 1,
            "SPOILT": 1,
            "REQUESTS": 1,
            "COLLECTOR_DEATHS": 1,
            "WORKER_DEATHS": 1,
        },
    ),
    "halt": Configuration(
        "no rows go on for ever, whoever is preferred",
        {"STEPS": 1, "REQUESTS": 2, "WORKER_DEATHS": 1, "CANCELS": 1},
        comes_to_rest=True,
    ),
}

LARGE: Final = {
    "rows, collector and worker": Configuration(
        "the collector's death and a worker's amid two rows",
        {"STEPS": 1, "SLOTS": 2, "REQUESTS": 2, "COLLECTOR_DEATHS": 1, "WORKER_DEATHS": 1},
    ),
    "everybody": Configuration(
        "a death of each role, and a frontend that gives up",
        {
            "REQUESTS": 2,
            "FRONTEND_DEATHS": 1,
            "COLLECTOR_DEATHS": 1,
            "WORKER_DEATHS": 1,
            "CANCELS": 1,
        },
    ),
    "both, two slots": Configuration(
        "a frontend's death and the collector's, two slots",
        {"SLOTS": 2, "REQUESTS": 2, "FRONTEND_DEATHS": 1, "COLLECTOR_DEATHS": 1},
    ),
    "collector, two slots": Configuration(
        "the collector's death, three requests in two slots",
        {"SLOTS": 2, "REQUESTS": 3, "COLLECTOR_DEATHS": 1},
    ),
    "collector and worker, two slots": Configuration(
        "the collector's death and a worker's, two slots",
        {"SLOTS": 2, "REQUESTS": 2, "COLLECTOR_DEATHS": 1, "WORKER_DEATHS": 1},
    ),
    "collectors and worker": Configuration(
        "two collectors' deaths and a worker's",
        {"REQUESTS": 2, "COLLECTOR_DEATHS": 2, "WORKER_DEATHS": 1},
    ),
    "collectors, ring by ring": Configuration(
        "two collectors' deaths, between any two rings that a frontend empties",
        {"FINE": 1, "REQUESTS": 3, "COLLECTOR_DEATHS": 2},
    ),
    "frontend, ring by ring": Configuration(
        "a frontend's death between any two rings that it empties, and a worker's",
        {"FINE": 1, "SLOTS": 2, "REQUESTS": 2, "FRONTEND_DEATHS": 1, "WORKER_DEATHS": 1},
    ),
    "hang, two slots": Configuration(
        "a batch of two that runs too long, and whose requests are given up",
        {"SLOTS": 2, "REQUESTS": 2, "HANGS": 1, "CANCELS": 1, "WORKER_DEATHS": 1},
    ),
    "rest after takeovers": Configuration(
        "no run goes on for ever, with a frontend's and the collector's death",
        {"REQUESTS": 2, "FRONTEND_DEATHS": 1, "COLLECTOR_DEATHS": 1},
        comes_to_rest=True,
    ),
}

_ROW: Final = {"STEPS": 1, "REQUESTS": 1, "COLLECTOR_DEATHS": 1}
_ONE_WORKER: Final = {"REQUESTS": 2, "CANCELS": 1, "WORKER_DEATHS": 1}
_ONE_COLLECTOR: Final = {"REQUESTS": 2, "COLLECTOR_DEATHS": 1}
_NO_WORKER: Final = {"READY_WORKERS": 0, "SLOTS": 2, "REQUESTS": 2, "CANCELS": 2}
_TAKEOVERS: Final = {"REQUESTS": 2, "FRONTEND_DEATHS": 1, "COLLECTOR_DEATHS": 1}

CONTROLS: Final = {
    "NO_GENERATION": Control(
        "references name a slot, not one request of it",
        _TAKEOVERS,
        ("g_lost", "g_mixed_up"),
    ),
    "RECLAIM_ON_TIMEOUT": Control(
        "a frontend takes a slot back at the deadline, with no proof that nobody writes",
        _ONE_WORKER,
        ("g_handed_out_again",),
    ),
    "RETRY_ON_TIMEOUT": Control(
        "a batch runs again because it took too long, its worker not proved dead",
        {"REQUESTS": 2, "HANGS": 1},
        ("g_answered_twice",),
    ),
    "PUBLISH_FIRST": Control("CONTROL is stored before the request", _TAKEOVERS, ("g_mixed_up",)),
    "DONE_FIRST": Control(
        "DONE is stored before the result", _TAKEOVERS, ("g_mixed_up", "g_handed_out_again")
    ),
    "POST_FIRST": Control("an answer is posted before DONE", _ONE_WORKER, ("g_mixed_up",)),
    "HUSH_LAST": Control(
        "a frontend takes the doorbell's rings after looking",
        {"FINE": 1, "SLOTS": 2, "REQUESTS": 2},
        ("g_lost",),
    ),
    "NARROW_RINGS": Control(
        "completion rings have one word for each slot, not two",
        {"REQUESTS": 2, "FRONTEND_DEATHS": 2, "WORKER_DEATHS": 1},
        ("g_lost",),
    ),
    "KEEP_THE_LATEST": Control(
        "of the answers that find no room, the latest are kept; rings of one word",
        {"SLOTS": 2, "REQUESTS": 3, "WORKER_DEATHS": 2, "EXPIRIES": 1, "COMPLETIONS": 1},
        ("g_lost",),
    ),
    "SWEEP_SUBMITS_NOTHING": Control(
        "what found no room in the submission ring waits for the next request",
        _TAKEOVERS,
        ("g_lost",),
    ),
    "CANCEL_SILENTLY": Control(
        "a frontend that cancels tells nobody",
        _NO_WORKER,
        ("g_lost",),
    ),
    "LOOK_AT_THE_NEW_ALONE": Control(
        "the collector does not look again at what it knows and is submitted once more",
        _NO_WORKER,
        ("g_lost",),
    ),
    "TAKE_IN_THE_CANCELLED": Control(
        "the collector does not look whether what it takes in is cancelled already",
        _NO_WORKER,
        ("g_lost",),
    ),
    "GIVE_BACK_THE_HELD": Control(
        "the collector answers what is cancelled though a worker holds it",
        _ONE_WORKER,
        ("g_answered_twice", "g_handed_out_again"),
    ),
    "FORGET_THE_PASSED_ON": Control(
        "what a batch of a step before the last has not answered goes nowhere",
        {"LAST_STEP": 1, "REQUESTS": 1},
        ("g_lost",),
    ),
    "PASS_ON_THE_ANSWERED": Control(
        "what has failed in a step goes on to the next all the same",
        {"LAST_STEP": 1, "REQUESTS": 2, "WORKER_DEATHS": 2},
        ("g_answered_twice", "g_mixed_up", "g_handed_out_again"),
    ),
    "NUMBER_ALIKE": Control(
        "a collector takes the report of a batch that the one before it gave for one of its own",
        {"LAST_STEP": 1, "REQUESTS": 1, "COLLECTOR_DEATHS": 1, "WORKER_DEATHS": 1, "CANCELS": 1},
        ("g_answered_twice", "g_mixed_up", "g_handed_out_again"),
    ),
    "ANSWER_TOO_SOON": Control(
        "a worker answers after a step before the last",
        {"LAST_STEP": 1, "REQUESTS": 1},
        ("g_mixed_up",),
    ),
    "REPEAT_NOTHING": Control(
        "answers that a dead worker wrote and did not post are not posted",
        {"REQUESTS": 2, "WORKER_DEATHS": 1},
        ("g_lost",),
    ),
    "ADOPT_ONLY_THE_OPEN": Control(
        "a new collector posts nothing that was answered before it came",
        _TAKEOVERS,
        ("g_lost",),
    ),
    "TAKE_THE_ANSWERED": Control(
        "the collector takes in what is submitted, answered or not",
        _TAKEOVERS,
        ("g_answered_twice", "g_mixed_up"),
    ),
    "ADOPT_WHAT_IS_HELD": Control(
        "a new collector takes in what a worker still holds", _ONE_COLLECTOR, ("g_answered_twice",)
    ),
    "SLOTS_FIRST": Control(
        "a new collector looks at what workers hold after it has looked at the slots",
        _ONE_COLLECTOR,
        ("g_answered_twice",),
    ),
    "RELEASE_FIRST": Control(
        "a worker lets go of a batch before it is answered", _ONE_COLLECTOR, ("g_answered_twice",)
    ),
    "REPORT_FIRST": Control(
        "a worker reports a batch before it lets go of it", _ONE_COLLECTOR, ("g_lost",)
    ),
    "REAPING_LEAVES_TASKS": Control(
        "what a dead worker held stays in its ring for the next one",
        {"REQUESTS": 2, "WORKER_DEATHS": 1},
        ("g_answered_twice",),
    ),
    "DEATH_LEAVES_STATE": Control(
        "a dead worker still says that it is ready",
        {"REQUESTS": 2, "COLLECTOR_DEATHS": 1, "WORKER_DEATHS": 1},
        ("g_assertion_of_the_code",),
    ),
    "TELL_DEATHS_ONCE": Control(
        "a death that a collector was told of and has not dealt with is not told to the next",
        {"REQUESTS": 2, "COLLECTOR_DEATHS": 1, "WORKER_DEATHS": 1},
        ("g_lost",),
    ),
    "RESTART_UNRECLAIMED": Control(
        "a worker is replaced before the collector knows of its death",
        {"REQUESTS": 2, "WORKER_DEATHS": 1},
        ("g_lost", "g_assertion_of_the_code"),
    ),
    "ADOPT_AS_FREE": Control(
        "a lane's next owner takes all slots for free", _TAKEOVERS, ("g_handed_out_again",)
    ),
    "ADOPT_WITHOUT_CANCEL": Control(
        "a lane's next owner does not cancel what it adopts", _TAKEOVERS, ("g_answered_twice",)
    ),
    "ADOPT_UNSUBMITTED": Control(
        "a lane's next owner does not submit what it adopts", _TAKEOVERS, ("g_lost",)
    ),
    "SKIP_LAST": Control(
        "a lane's next owner empties the rings after looking at the slots",
        _TAKEOVERS,
        ("g_lost",),
    ),
    "RUN_THE_BEGUN": Control(
        "neither collector nor worker looks whether a part is out of what they run again",
        {"PARTS": 1, "REQUESTS": 1, "WORKER_DEATHS": 1},
        ("g_run_again",),
    ),
    "TRUST_THE_COLLECTOR": Control(
        "a worker does not look whether a part is out: the collector has, where it could",
        {"PARTS": 1, "SPOILT": 1, "REQUESTS": 1, "COLLECTOR_DEATHS": 1, "WORKER_DEATHS": 1},
        ("g_run_again",),
    ),
    "TAKE_A_NOTICE_FOR_THE_ANSWER": Control(
        "a frontend does not tell a notice of a part from an answer",
        {"PARTS": 1, "REQUESTS": 1},
        ("g_mixed_up",),
    ),
    "INHERIT_THE_WISH": Control(
        "a lane's next owner leaves PARTS_OF as it is in free slots",
        {"PARTS": 1, "REQUESTS": 2, "FRONTEND_DEATHS": 1},
        ("g_mixed_up",),
    ),
    "OPEN_WHERE_IT_WAS": Control(
        "a frontend that wants parts begins where it stopped to read, not at the end",
        {"PARTS": 1, "REQUESTS": 2, "CANCELS": 1},
        ("g_mixed_up", "g_run_again"),
    ),
    "RELEASE_UNJOINED": Control(
        "a worker takes a task out of its ring before it stores JOINED",
        _ROW,
        ("g_held_twice", "g_answered_twice"),
    ),
    "SLOTS_BEFORE_RINGS": Control(
        "a new collector looks for JOINED before it reads the rings",
        _ROW,
        ("g_held_twice", "g_answered_twice"),
    ),
    "RECLAIM_LEAVES_JOINED": Control(
        "JOINED still names a dead worker when the next one of its number starts",
        {**_ROW, "WORKER_DEATHS": 1},
        ("g_lost",),
    ),
    "CLEAR_THE_ANSWERED": Control(
        "JOINED that names a dead worker is cleared where the request is answered, too",
        {**_ROW, "REQUESTS": 2, "WORKER_DEATHS": 1},
        ("g_held_twice", "g_answered_twice"),
    ),
    "JOINED_WITHOUT_GENERATION": Control(
        "JOINED of an earlier request is taken for one of the slot's latest",
        {**_ROW, "REQUESTS": 2},
        ("g_lost",),
    ),
    "TAKE_FROM_BOTH": Control(
        "a new collector takes a row twice that is in the ring and joined",
        _ROW,
        ("g_lost",),
    ),
}
