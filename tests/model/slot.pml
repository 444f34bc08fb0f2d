/* The life of a slot: one lane, the frontends that own it one after the other, the collector, two
 * workers, and the death of each between any two steps. README.md beside this file says what is
 * modelled and what is not, and how to run it.
 *
 * Each option of a role's loop is one step, and the comment above it names the code it stands for,
 * as file: function. Names are those of the code; what begins with g_ is no part of the protocol
 * and serves the assertions alone. Where a name in capitals is looked at by #ifdef, other than
 * FINE, it makes the model wrong in one respect, which must be found.
 *
 * A reference is one byte: generation times MOST plus slot. Generations begin with 1, so that
 * generation 0 stands for none.
 */

#ifndef SLOTS
#define SLOTS 1             /* of the lane, 1 or 2 */
#endif
#ifndef REQUESTS
#define REQUESTS 2          /* how many are sent altogether */
#endif
#ifndef CANCELS
#define CANCELS 0           /* how many of them the frontend gives up */
#endif
#ifndef EXPIRIES
#define EXPIRIES 0          /* how many the collector refuses, or finds too late */
#endif
#ifndef HANGS
#define HANGS 0             /* how many batches run too long */
#endif
#ifndef FRONTEND_DEATHS
#define FRONTEND_DEATHS 0
#endif
#ifndef COLLECTOR_DEATHS
#define COLLECTOR_DEATHS 0
#endif
#ifndef WORKER_DEATHS
#define WORKER_DEATHS 0     /* those that a hang brings come on top */
#endif
#ifndef READY_WORKERS
#define READY_WORKERS 1     /* 0 where no worker is ever ready, so that nothing is dispatched */
#endif
#ifndef LAST_STEP
#define LAST_STEP 0         /* 1 where every request is for a chain of two steps */
#endif
#ifndef PARTS
#define PARTS 0             /* 1 where a request may want its answer in parts, of which one is out */
#endif
#ifndef SPOILT
#define SPOILT 0            /* 1 where a dead worker's ring of tasks may make no sense */
#endif
#ifndef STEPS
#define STEPS 0             /* 1 where models run in steps, which rows join and leave in between */
#define OF_STEPS hidden
#else
#define OF_STEPS            /* variables that are no part of the state but there */
#endif
/* shm/layout.py: Layout.completion_words */
#ifdef NARROW_RINGS
#define COMPLETIONS SLOTS
#endif
#ifndef COMPLETIONS
#define COMPLETIONS (2 * SLOTS)
#endif

#define MOST 2
#define WORKERS 2
#define MAX_DEATHS 2

#define REF(generation, slot) ((generation) * MOST + (slot))
#define SLOT(ref) ((ref) % MOST)
#define GENERATION(ref) ((ref) / MOST)

#ifdef NO_GENERATION
#define SAME(one, other) (GENERATION(one) && SLOT(one) == SLOT(other))
#define IS_OPEN(ref) (control[SLOT(ref)] != done[SLOT(ref)])
#define IS_LATEST(ref) true
#else
#define SAME(one, other) ((one) == (other))
/* shm/engine_slots.py: EngineSlots.is_open */
#define IS_OPEN(ref) (control[SLOT(ref)] == GENERATION(ref) && done[SLOT(ref)] != GENERATION(ref))
#define IS_LATEST(ref) (control[SLOT(ref)] == GENERATION(ref))
#endif

/* The properties. These are always 0; what pan prints of an assertion that fails has the name. */
hidden byte g_answered_twice;        /* at most one answer to a request */
hidden byte g_held_twice;            /* and at most one worker that holds it */
hidden byte g_run_again;             /* no run of a request of which a part is out already */
hidden byte g_mixed_up;              /* and it is its own, whole */
hidden byte g_handed_out_again;      /* what is handed out again has no writer left */
hidden byte g_lost;                  /* where nobody can move any more, all is answered and free */
hidden byte g_assertion_of_the_code;
#define MUST_HOLD(condition, otherwise) assert((condition) || otherwise)

/* The segment. Rings are channels: an item's word and the TAIL that covers it are one step. */

byte control[MOST];                      /* CONTROL: the generation of the latest request */
bit dropped[MOST];                       /* CONTROL: its flag */
byte done[MOST];                         /* DONE: the generation answered last */
byte header_extent[MOST];                /* REQUEST_OFFSET and RESULT_OFFSET */
byte header_ref[MOST];                   /* whose the header is: all its other words */
byte request[MOST], result[MOST];        /* whose bytes stand in each extent of payload memory */
byte kept[MOST];                         /* and what step 0 of a chain has kept there */
chan submissions = [SLOTS] of { byte };
chan completions[WORKERS + 1] = [COMPLETIONS] of { byte };
chan tasks[WORKERS] = [2] of { byte, byte, bit, byte };  /* a batch: the generation in each slot, or
                                          * 0; its step; and which collector has given it */
chan reports[WORKERS] = [6] of { byte, byte, byte };  /* the batch that is done, and who has given
                                          * it; none for READY */
bit says_ready[WORKERS] = READY_WORKERS;             /* WORKER_STATE: whether it is READY */
bit lane_bell;

/* Parts of an answer: shm/parts.py: PartReader, PartWriter. Of a request one part is out at most, so
 * that the lowest bit of a position is enough. */
byte parts_of[MOST];                     /* PARTS_OF: a generation */
bit parts_from[MOST], parts_taken[MOST], parts_end[MOST];
#define WANTS_PARTS(ref) (PARTS && parts_of[SLOT(ref)] == GENERATION(ref))
#define PART_IS_OUT(ref) (WANTS_PARTS(ref) && parts_end[SLOT(ref)] != parts_from[SLOT(ref)])

/* Who holds a row of a model in steps, and whether another one is of the same batch: JOINED, BATCH. */
OF_STEPS byte joined[MOST];                       /* a generation, or 0 */
OF_STEPS byte joined_by[MOST], joined_with[MOST];

#define NOTICE 128                       /* PART, in a reference: a part is out */
#define PART_OF(ref) ((ref) + NOTICE)    /* bytes of a part, where results stand */
#define TORN 255                         /* bytes of a request whose last ones are not written */
#define COLLECTOR WORKERS                /* its number as a producer of completions */

byte g_owner[MOST];                      /* the reference that an extent was handed out to */
bit g_out[MOST], g_read[MOST];           /* of a slot's request, a part is out, and was read */

#define HAS(ring) (len(ring) > 0)
#define HAS_COMPLETION_ROOM(producer) (len(completions[producer]) < COMPLETIONS)

/* A frontend: shm/lane.py: Lane; frontend/request/gateway.py: Gateway */

mtype = { DEAD, SERVING, CLAIMED, WRITTEN, TAKING, HELD_BACK, FOUND, ADOPTING, ADOPTED };
mtype frontend_at = SERVING;
byte current;                            /* the slot or the ring that it is at */
bit free[MOST], waiting[MOST], cancelled[MOST], unsubmitted[MOST], found[MOST];
byte generation[MOST], expected[MOST], extent[MOST];
bit extent_used[MOST];
byte outdated[MOST];                     /* how many earlier ones are unsubmitted, all answered */
bit wants[MOST], parted[MOST];            /* its request wants parts; one is out */
bit turn_is_due, held_back, withdraws;
byte requests_left = REQUESTS, cancels_left = CANCELS, frontend_deaths_left = FRONTEND_DEATHS;

/* The collector: engine/collector/collector.py: Collector */

mtype = { STOPPED, ASKING, LEARNING, FINDING, SCANNING, STEPPING, CLEARING };
mtype collector_at = STEPPING;
byte scanned;                            /* the worker or the slot that a new one is at */
byte queue[MOST];                        /* generations */
bit again[MOST];                         /* to be run once more, alone */
byte queue_deaths[MOST];
bit queue_step[MOST];                    /* at which step of its chain it waits */
byte batch[WORKERS * MOST];              /* what each worker was given: generations */
bit batch_step[WORKERS * MOST];
byte batch_giver[WORKERS * MOST];        /* no two collectors number a batch alike */
byte collector_number;                   /* counted for chains alone: other batches tell by what they
                                          * hold */
byte batch_deaths[WORKERS * MOST];
bit behind[WORKERS * MOST];              /* of those, what it is to go on with */
bit ready[WORKERS] = READY_WORKERS;
bit idle[WORKERS] = READY_WORKERS;
bit ending[WORKERS];
bit lane_to_wake;
OF_STEPS byte clearing, cleared, names;            /* JOINED: of which worker, in which slot, found there */
OF_STEPS byte takes_over;                          /* and amid a takeover */
byte collector_deaths_left = COLLECTOR_DEATHS, hangs_left = HANGS, expiries_left = EXPIRIES;

/* The supervisor: engine/supervisor/supervisor.py: Supervisor */

bit must_end[WORKERS];                   /* it hangs */
bit is_dead[WORKERS];                    /* and the supervisor has yet to find out */
bit told_dead[WORKERS];                  /* a collector has yet to reclaim what it held */
bit may_start[WORKERS];

/* Workers: engine/worker/worker.py: Worker; engine/worker/runner.py: Runner */

mtype = { ABSENT, BEGINNING, ASLEEP, JOINING, TAKEN, RUNNING, YIELDED, NOTICED, GOING_ON, WRITING,
    ANSWERING, WAKING, RELEASING, REPORTING, RINGING };
#define AT_REST (READY_WORKERS -> ASLEEP : ABSENT)
mtype worker_at[WORKERS] = AT_REST;
byte held[WORKERS * MOST];               /* generations that it has not answered */
byte given[WORKERS * MOST];              /* all those of its batch */
bit asked[WORKERS];                      /* the step of that */
byte giver[WORKERS];                     /* and who has given it */
byte held_extent[WORKERS * MOST];
OF_STEPS byte picked[WORKERS * MOST];              /* in steps: which rows it is at */
OF_STEPS byte stored[WORKERS * MOST];     /* of which JOINED is */
OF_STEPS byte peeked[WORKERS];                    /* how many tasks join */
OF_STEPS byte joint[WORKERS];                      /* whether its two rows are one batch */
byte worker_deaths_left = WORKER_DEATHS;

chan answered[WORKERS + 1] = [6] of { byte };  /* shm/engine_slots.py: EngineSlots._answered */

/* For use within one step; what is looked at after a choice must be a part of the state. */
byte chosen;
hidden byte i, ref, slot, count;
hidden byte learnt_step, learnt_giver;

#include "frontend.pml"
#include "holder.pml"
#include "steps.pml"
#include "collector.pml"
#include "worker.pml"

init {
    atomic {
        free[0] = 1;
        free[1] = (SLOTS > 1);
        run frontend();
        run collector();
        run worker(0);
        run worker(1)
    }

    timeout ->
    d_step {
        MUST_HOLD(frontend_at == SERVING && requests_left == 0, g_lost);
        MUST_HOLD(!waiting[0] && !waiting[1], g_lost);
        MUST_HOLD(free[0] && free[1] == (SLOTS > 1), g_lost);
        MUST_HOLD(!extent_used[0] && !extent_used[1], g_lost);
        MUST_HOLD(collector_at == STEPPING && !queue[0] && !queue[1], g_lost);
        MUST_HOLD(idle[0] == READY_WORKERS && idle[1] == READY_WORKERS, g_lost);
        MUST_HOLD(len(tasks[0]) == 0 && len(tasks[1]) == 0, g_lost);
        MUST_HOLD(worker_at[0] == AT_REST && worker_at[1] == AT_REST, g_lost);
        MUST_HOLD(len(submissions) == 0 && len(answered[COLLECTOR]) == 0, g_lost)
    }
}
