"""The lives in which a mutant is sought, where it shows in few of the others."""

from dataclasses import replace
from typing import Final

from simulation.device_mutants import CHAINED, DEVICE_MUTANTS
from simulation.machine import MICROSECOND_NS, MILLISECOND_NS
from simulation.mutants import (
    CHAIN_MUTANTS,
    DONE_FIRST,
    GOES_ON,
    LIES_OVER,
    LIMIT_MUTANTS,
    PARTS_MUTANTS,
    WISH_LEFT,
)
from simulation.profiles import CROWDED, Profile
from simulation.steps_mutants import (
    COST_MUTANTS,
    FAIL_AGAIN,
    FIRST_ALONE,
    GIVEN_UP,
    NOT_TO_THE_EMPTY,
    OTHERS_FORGOTTEN,
    PARTS_KEPT,
    PAUSED_BLOCK,
    PLACES_STAY,
    SILENT_UNCOUNTED,
    SLOTS_FIRST,
    SPOILT,
    STARVES,
    STEPS_MUTANTS,
    WAIT_UNWANTED,
)

from ringbatch.shm.account_limits import AccountLimits

BROKEN_CHAINS: Final = Profile(
    requests=8,
    stride=8,
    kills_of_workers=0.1,
    kills_of_collectors=0.15,
    strange=0.3,
    chained=True,
)
"""Processes that hold a chain's request die between its steps; some end before the last."""
FAILING_CHAINS: Final = Profile(
    requests=8,
    stride=3,
    gap_ns=20 * MILLISECOND_NS,
    kills_of_workers=0.03,
    strange=0.8,
    chained=True,
)
"""Many requests of a chain end before its last step, and now and then a worker dies saying so."""
FATAL_CHAINS: Final = Profile(
    requests=6,
    stride=60,
    gap_ns=20 * MILLISECOND_NS,
    run_ns=MILLISECOND_NS,
    kills_of_collectors=0.03,
    fatal=0.8,
    chained=True,
)
"""Workers die of requests at all steps, and collectors while they give these up: requests come
until then, as nothing happens to anybody once all have come."""
LIMITED: Final = Profile(
    requests=16,
    stride=8,
    kills_of_workers=0.05,
    kills_of_collectors=0.1,
    cancels=0.2,
    short_deadlines=0.2,
    limits=AccountLimits(in_flight=2),
)
"""Accounts reach their limit, and processes die that hold their requests."""
CANCELLED_CHAINS: Final = Profile(requests=8, stride=8, cancels=1.0, chained=True)
"""Many requests of a chain are cancelled while a step of it runs."""
DYING_WORKERS: Final = Profile(
    requests=8, stride=3, gap_ns=20 * MILLISECOND_NS, kills_of_workers=0.05
)
"""Workers die in the midst of their answers, which wait for nobody else's."""
DYING_COLLECTORS: Final = Profile(
    requests=8,
    stride=20,
    gap_ns=50 * MICROSECOND_NS,
    run_ns=MILLISECOND_NS // 10,
    kills_of_collectors=0.1,
)
"""Collectors die while much has just been submitted."""
DYING_IN_LOAD: Final = Profile(
    requests=30,
    stride=20,
    gap_ns=200 * MICROSECOND_NS,
    run_ns=MILLISECOND_NS // 10,
    kills_of_workers=0.1,
    alike=1.0,
)
"""A worker dies that has a second batch."""
FULL_RINGS: Final = Profile(
    requests=60,
    stride=20,
    stops_of_collectors=0.3,
    cancels=0.3,
    short_deadlines=0.3,
)
"""A ring is full, of what is cancelled while the collector is stopped."""
IN_PARTS: Final = Profile(requests=8, stride=8, kills_of_workers=0.05, in_parts=True)
"""Workers die in the midst of their parts."""
DYING_FRONTENDS: Final = Profile(
    requests=16, stride=3, gap_ns=20 * MILLISECOND_NS, kills_of_frontends=0.03, in_parts=True
)
"""Frontends die between a wish for parts and its request, and others follow in their lanes."""
IN_STEPS: Final = Profile(
    requests=16, stride=8, kills_of_workers=0.05, kills_of_collectors=0.05, in_steps=True
)
"""Workers and collectors die while rows are live."""
STRANGE_STEPS: Final = Profile(
    requests=16,
    stride=60,
    gap_ns=MILLISECOND_NS // 2,
    run_ns=MILLISECOND_NS,
    stops_of_frontends=0.1,
    strange=0.8,
    in_steps=True,
)
"""Steps raise, and parts find no room."""
ON_DEVICE: Final = Profile(
    requests=24,
    stride=8,
    gap_ns=MILLISECOND_NS // 2,
    kills_of_workers=0.03,
    fatal=0.1,
    strange=0.3,
    cancels=0.3,
    lead_ns=2 * MILLISECOND_NS,
)
"""Two batches are under way, and fail, are cancelled or end their worker."""
COSTLY: Final = Profile(
    requests=24,
    stride=8,
    gap_ns=MILLISECOND_NS // 2,
    run_ns=3 * MILLISECOND_NS,
    strange=0.2,
    kills_of_workers=0.01,
    in_steps=True,
    costs=True,
)
"""Rows wait until what they cost fits."""
SOUGHT_IN: Final = {
    **dict.fromkeys(CHAIN_MUTANTS, BROKEN_CHAINS),
    **dict.fromkeys(LIMIT_MUTANTS, LIMITED),
    **dict.fromkeys(PARTS_MUTANTS, IN_PARTS),
    **dict.fromkeys(STEPS_MUTANTS, IN_STEPS),
    **dict.fromkeys(COST_MUTANTS, COSTLY),
    **dict.fromkeys(DEVICE_MUTANTS, ON_DEVICE),
    CHAINED: Profile(requests=16, stride=8, chained=True, lead_ns=2 * MILLISECOND_NS),
    STARVES: replace(COSTLY, gap_ns=50 * MICROSECOND_NS, kills_of_workers=0.0, strange=0.0),
    NOT_TO_THE_EMPTY: replace(
        COSTLY, changes=0.4, fatal=0.3, kills_of_workers=0.05, kills_of_collectors=0.05
    ),
    WAIT_UNWANTED: replace(COSTLY, cancels=0.8),
    SLOTS_FIRST: Profile(
        requests=16,
        stride=3,
        loads=True,
        run_ns=MILLISECOND_NS // 10,
        kills_of_collectors=0.01,
        in_steps=True,
    ),
    OTHERS_FORGOTTEN: Profile(
        requests=30,
        stride=3,
        gap_ns=50 * MICROSECOND_NS,
        run_ns=MILLISECOND_NS // 10,
        fatal=0.4,
        in_steps=True,
    ),
    FIRST_ALONE: Profile(requests=16, fatal=0.3, in_steps=True),
    PLACES_STAY: Profile(requests=16, changes=0.4, in_steps=True),
    **dict.fromkeys(
        (PAUSED_BLOCK, SPOILT, PARTS_KEPT, FAIL_AGAIN, SILENT_UNCOUNTED), STRANGE_STEPS
    ),
    GIVEN_UP: Profile(requests=16, cancels=1.0, in_steps=True),
    WISH_LEFT: DYING_FRONTENDS,
    GOES_ON: FATAL_CHAINS,
    LIES_OVER: FAILING_CHAINS,
    DONE_FIRST: replace(FAILING_CHAINS, requests=4),
    "a step in the middle is run twice": Profile(requests=4, chained=True),
    "a request that a step passes on waits though it is cancelled": CANCELLED_CHAINS,
    **dict.fromkeys(
        (
            "one model may have all slots",
            "one model may have the slots of all others",
            "a lent slot comes back for all",
            "a model's own slots are lent once",
        ),
        CROWDED[-1],
    ),
    "the collector sleeps without a second look": Profile(requests=8, stride=20),
    "many answers that are alike are DONE before their details": CROWDED[3],
    "a few answers that are alike are DONE before their details": replace(DYING_WORKERS, alike=1.0),
    "an answer is DONE before its details": DYING_WORKERS,
    "a forwarded answer is DONE before its bytes": DYING_WORKERS,
    "a refusal is DONE before its text": replace(DYING_WORKERS, strange=0.8),
    "a request is published before its header": Profile(
        requests=8, stride=3, kills_of_collectors=0.1, stops_of_frontends=0.1
    ),
    "requests that find no room are not submitted later": FULL_RINGS,
    "a request without room is submitted only with the next answer": Profile(
        requests=60,
        stride=60,
        gap_ns=5 * MILLISECOND_NS,
        run_ns=0,
        kills_of_collectors=0.1,
        stops_of_frontends=0.3,
    ),
    "a cancelled request is submitted a second time though it was not a first": Profile(
        requests=20,
        stride=8,
        gap_ns=200 * MICROSECOND_NS,
        run_ns=60 * MILLISECOND_NS,
        cancels=1.0,
    ),
    "a collector takes over a cancelled request": Profile(
        requests=8, kills_of_collectors=0.1, cancels=1.0
    ),
    "a dead worker's request waits though it is cancelled": Profile(
        requests=8, kills_of_workers=0.1, cancels=1.0
    ),
    "a dead worker's next batch is forgotten": DYING_IN_LOAD,
    "a collector leaves the estimate of the one before": DYING_COLLECTORS,
    "a worker that has said twice that it is ready is two": replace(
        DYING_IN_LOAD, kills_of_collectors=0.1
    ),
    "a dead worker still says that it is ready": Profile(
        requests=8, kills_of_collectors=0.1, kills_of_workers=0.1
    ),
    "requests wait for a worker that is not to be expected": Profile(
        requests=8, gap_ns=20 * MILLISECOND_NS, kills_of_workers=0.1, failing_loads=0.8
    ),
}
"""Profiles in which each mutant is sought."""

SOUGHT_FROM: Final = {
    "the collector sleeps without a second look": 600,
    "a request is published before its bytes": 260,
    "many answers that are alike are DONE before their details": 390,
    "a hung worker's batch is taken back before its death": 170,
    "nobody rings for batches that the previous collector gave": 130,
    "a model is looked at only when its instant comes": 90,
    "the answer of a chain is DONE before its size": 190,
    "a worker lets go of a task before its slots name it": 150,
    "a collector looks at slots before rings": 450,
    "a batch that runs again has company on a device": 160,
}
"""The first seed of the lives in which a mutant is sought, for those that few lives show."""
