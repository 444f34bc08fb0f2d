/* shm/slot_memory.py: SlotMemory.release */
inline release(number) {
    extent_used[extent[number]] = 0;
    g_owner[extent[number]] = 0;
    extent[number] = 0;
    wants[number] = 0;
    g_out[number] = 0;
    g_read[number] = 0;
    free[number] = 1
}

inline write_request() {
    request[extent[current]] = g_owner[extent[current]]
}

inline write_header() {
    header_extent[current] = extent[current];
    header_ref[current] = g_owner[extent[current]]
}

inline store_control() {
    outdated[current] = outdated[current] + unsubmitted[current];
    generation[current]++;
    control[current] = generation[current];
    dropped[current] = 0;
    expected[current] = generation[current];
    unsubmitted[current] = 1;
    waiting[current] = 1;
    turn_is_due = 1
}

/* shm/parts.py: PartReader.open */
inline open_parts() {
#ifndef OPEN_WHERE_IT_WAS
    parts_from[current] = parts_end[current];
    parts_taken[current] = parts_end[current];
#endif
    parts_of[current] = generation[current] + 1
}

#define SOME_WAIT (unsubmitted[0] || unsubmitted[1])
#define ALL_FIT \
    (len(submissions) + unsubmitted[0] + unsubmitted[1] + outdated[0] + outdated[1] <= SLOTS)

/* Whether an answer can have come to what was submitted before. */
#define OTHERS_ARE_OUT \
    (held_back || (expected[0] && !unsubmitted[0]) || (expected[1] && !unsubmitted[1]))

/* shm/lane.py: Lane._forget_answered */
inline forget_answered() {
    unsubmitted[0] = unsubmitted[0] && expected[0];
    unsubmitted[1] = unsubmitted[1] && expected[1];
    outdated[0] = 0;
    outdated[1] = 0;
    held_back = held_back && SOME_WAIT
}

/* shm/lane.py: Lane.submit, Lane._leave_out_the_needless */
inline submit() {
    if
    :: withdraws -> forget_answered()
    :: else -> skip
    fi;
    if
    :: !SOME_WAIT -> skip
    :: SOME_WAIT && !ALL_FIT -> held_back = 1
    :: else ->
        for (i : 0 .. MOST - 1) {
            do
            :: outdated[i] ->
                submissions!REF(generation[i] - outdated[i], i);
                outdated[i] = outdated[i] - 1
            :: else -> break
            od;
            if
            :: unsubmitted[i] -> submissions!REF(generation[i], i); unsubmitted[i] = 0
            :: else -> skip
            fi
        }
        held_back = 0
    fi;
    withdraws = withdraws && held_back
}

/* shm/lane.py: Lane.collect, one ring; Lane._wanted, notices */
inline take_completions(producer) {
    do
    :: HAS(completions[producer]) ->
        completions[producer]?ref;
        slot = SLOT(ref);
        if
#ifdef TAKE_A_NOTICE_FOR_THE_ANSWER
        :: PARTS && ref >= NOTICE -> ref = ref - NOTICE
        :: else -> skip
        fi;
        if
#else
        :: PARTS && ref >= NOTICE ->
            parted[slot] = SAME(REF(expected[slot], slot), ref - NOTICE) && !cancelled[slot]
#endif
        :: (!PARTS || ref < NOTICE) && !SAME(REF(expected[slot], slot), ref) -> skip
        :: else ->
            expected[slot] = 0;
            if
            :: cancelled[slot] -> cancelled[slot] = 0; release(slot)
            :: else -> found[slot] = 1
            fi
        fi
    :: else -> break
    od;
    slot = 0
}

inline skip_completions() {
    for (i : 0 .. WORKERS) {
        do
        :: HAS(completions[i]) -> completions[i]?_
        :: else -> break
        od
    }
}

/* frontend/request/parts_task.py: RequestInParts.has_parts; shm/parts.py: PartReader.next, PartReader.take */
inline take_parts(number) {
    if
    :: parts_taken[number] != parts_end[number] ->
        MUST_HOLD(result[extent[number]] == PART_OF(REF(generation[number], number)), g_mixed_up);
        parts_taken[number] = parts_end[number];
        g_read[number] = 1
    :: else -> skip
    fi
}

/* Behind the last part comes no result. frontend/request/parts_task.py: RequestInParts.answered */
inline deliver() {
    for (i : 0 .. MOST - 1) {
        if
        :: found[i] ->
            MUST_HOLD(waiting[i], g_answered_twice);
            MUST_HOLD(done[i] == generation[i], g_mixed_up);
            if
            :: wants[i] -> take_parts(i); MUST_HOLD(g_read[i] == g_out[i], g_mixed_up)
            :: else -> MUST_HOLD(result[extent[i]] == REF(generation[i], i), g_mixed_up)
            fi;
            waiting[i] = 0;
            found[i] = 0;
            release(i)
        :: !found[i] && parted[i] && waiting[i] && wants[i] -> take_parts(i)
        :: else -> skip
        fi;
        parted[i] = 0
    }
#ifdef HUSH_LAST
    lane_bell = 0;
#endif
    slot = 0
}

proctype frontend() {
end:
    do

    /* frontend/request/task.py: SlotRequest.send; shm/slot_memory.py: SlotMemory.claim; and
     * the request is written. As long as the lane is unused its slots are alike. */
    :: atomic {
            frontend_at == SERVING && requests_left && (free[0] || free[1]) ->
            if
            :: free[0] -> current = 0
            :: free[1] && (!free[0] || control[0] || control[1]) -> current = 1
            fi;
            if
            :: !extent_used[0] -> extent[current] = 0
            :: !extent_used[1] -> extent[current] = 1
            fi;
            requests_left--;
            free[current] = 0;
            extent_used[extent[current]] = 1;
            g_owner[extent[current]] = REF(generation[current] + 1, current);
#ifdef PUBLISH_FIRST
            store_control();
#else
            write_request();
#endif
            frontend_at = CLAIMED
        }

    /* frontend/request/parts_task.py: RequestInParts.send_in_parts; shm/parts.py: PartReader.open */
    :: d_step {
            PARTS && frontend_at == CLAIMED && !wants[current] ->
            open_parts();
            wants[current] = 1
        }

    /* shm/lane.py: Lane.send, Lane.publish_many, the header */
    :: d_step {
            frontend_at == CLAIMED ->
#ifdef PUBLISH_FIRST
            write_request();
#endif
            write_header();
            frontend_at = WRITTEN
        }

    /* shm/lane.py: Lane.send, Lane.publish_many, CONTROL; frontend/request/gateway.py: Gateway.wait_for */
    :: d_step {
            frontend_at == WRITTEN ->
#ifndef PUBLISH_FIRST
            store_control();
#endif
            current = 0;
            frontend_at = SERVING
        }

    /* frontend/request/gateway.py: Gateway._submit; shm/lane.py: Lane.unanswered, Lane.submit */
    :: d_step {
            frontend_at == SERVING && turn_is_due ->
            turn_is_due = 0;
            frontend_at = (OTHERS_ARE_OUT -> TAKING : SERVING);
            submit();
        }

    /* frontend/request/gateway.py: Gateway._answer_doorbell */
    :: d_step {
            frontend_at == SERVING && lane_bell ->
#ifndef HUSH_LAST
            lane_bell = 0;
#endif
            frontend_at = TAKING
        }

    /* shm/lane.py: Lane.collect, one ring after the other; Lane._forget_answered */
    :: d_step {
            frontend_at == TAKING ->
#ifdef FINE
            take_completions(current);
            current = (current < WORKERS -> current + 1 : 0);
#else
            take_completions(0);
            take_completions(1);
            take_completions(COLLECTOR);
#endif
            if
            :: current -> skip
            :: !current && held_back ->
                forget_answered();
                frontend_at = HELD_BACK
            :: else ->
#ifdef FINE
                frontend_at = FOUND
#else
                deliver();
                frontend_at = SERVING
#endif
            fi
        }

    /* shm/lane.py: Lane.collect, what was held back */
    :: d_step { frontend_at == HELD_BACK -> submit(); frontend_at = FOUND }

    /* frontend/request/gateway.py: Gateway.collect; frontend/request/task.py: SlotRequest.answered; shm/lane.py: Lane.outcome */
    :: d_step { frontend_at == FOUND -> deliver(); frontend_at = SERVING }

    /* frontend/request/gateway.py: Gateway.sweep, Gateway.cancel; shm/lane.py: Lane.cancel */
    :: atomic {
            frontend_at == SERVING && cancels_left && (waiting[0] || waiting[1]) ->
            if
            :: waiting[0] -> chosen = 0
            :: waiting[1] -> chosen = 1
            fi;
            cancels_left--;
            waiting[chosen] = 0;
            dropped[chosen] = 1;
#ifdef RECLAIM_ON_TIMEOUT
            expected[chosen] = 0;
            release(chosen);
#else
            cancelled[chosen] = 1;
#ifndef CANCEL_SILENTLY
            unsubmitted[chosen] = 1;
            withdraws = 1;
            turn_is_due = 1;
#endif
#endif
            chosen = 0
        }

#ifndef SWEEP_SUBMITS_NOTHING
    /* frontend/request/gateway.py: Gateway.sweep, what was held back */
    :: d_step {
            frontend_at == SERVING && held_back && SOME_WAIT &&
                len(submissions) + unsubmitted[0] + unsubmitted[1] <= SLOTS ->
            frontend_at = TAKING
        }
#endif

    /* Its death, with which its lock on the lane goes: shm/segment.py: Segment.lock_lane */
    :: d_step {
            frontend_at != DEAD && frontend_deaths_left ->
            frontend_deaths_left--;
            for (i : 0 .. MOST - 1) {
                free[i] = 0;
                waiting[i] = 0;
                cancelled[i] = 0;
                unsubmitted[i] = 0;
                outdated[i] = 0;
                found[i] = 0;
                generation[i] = 0;
                expected[i] = 0;
                extent[i] = 0;
                extent_used[i] = 0;
                wants[i] = 0;
                parted[i] = 0
            }
            turn_is_due = 0;
            held_back = 0;
            withdraws = 0;
            current = 0;
            frontend_at = DEAD
        }

    /* The next owner. shm/segment.py: Segment.lock_lane; shm/lane.py: Lane._take_over, rings */
    :: d_step {
            frontend_at == DEAD ->
#ifndef SKIP_LAST
            skip_completions();
#endif
            frontend_at = ADOPTING
        }

    /* shm/lane.py: Lane._take_over, one slot after the other */
    :: d_step {
            frontend_at == ADOPTING ->
            generation[current] = control[current];
            if
#ifdef ADOPT_AS_FREE
            :: true -> free[current] = 1
#else
            :: control[current] == done[current] ->
#ifndef INHERIT_THE_WISH
                parts_of[current] = 0;
#endif
                g_out[current] = 0;
                g_read[current] = 0;
                free[current] = 1
#endif
            :: else ->
                extent[current] = header_extent[current];
                MUST_HOLD(!extent_used[extent[current]], g_handed_out_again);
                extent_used[extent[current]] = 1;
#ifndef ADOPT_WITHOUT_CANCEL
                dropped[current] = 1;
                cancelled[current] = 1;
#endif
#ifndef ADOPT_UNSUBMITTED
                unsubmitted[current] = 1;
                withdraws = 1;
#endif
                expected[current] = generation[current]
            fi;
            if
            :: current + 1 < SLOTS -> current++
            :: else ->
                g_owner[0] = (extent_used[0] -> g_owner[0] : 0);
                g_owner[1] = (extent_used[1] -> g_owner[1] : 0);
                current = 0;
                frontend_at = ADOPTED
            fi
        }

    /* shm/lane.py: Lane._take_over, submitting */
    :: d_step {
            frontend_at == ADOPTED ->
#ifdef SKIP_LAST
            skip_completions();
#endif
            submit();
            frontend_at = SERVING
        }
    od
}
