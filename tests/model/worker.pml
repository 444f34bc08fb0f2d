#ifdef ANSWER_TOO_SOON
#define ANSWERS(number) true
#else
#define ANSWERS(number) (asked[number] == LAST_STEP)
#endif

/* A part was out when the worker took its batch up. */
#ifdef RUN_THE_BEGUN
#define IS_BEGUN(at) false
#else
#ifdef TRUST_THE_COLLECTOR
#define IS_BEGUN(at) false
#else
#define IS_BEGUN(at) HAS_PUT(at)
#endif
#endif
#define RUNS_NOW (worker_at[number] == RUNNING && !IS_BEGUN(0) && !IS_BEGUN(1))

inline read_requests() {
    for (i : 0 .. MOST - 1) {
        if
        :: HOLDS(i) ->
            ref = REF(HOLDS(i), i);
            MUST_HOLD(header_ref[i] == ref, g_mixed_up);
            MUST_HOLD(request[header_extent[i]] == ref, g_mixed_up);
            MUST_HOLD(!asked[number] || kept[header_extent[i]] == ref, g_mixed_up);
            held_extent[number * MOST + i] = header_extent[i]
        :: else -> skip
        fi
    }
    ref = 0
}

inline begin_run() {
    for (i : 0 .. MOST - 1) { MUST_HOLD(!HOLDS(i) || !g_out[i], g_run_again) }
}

inline write_results(whole) {
    for (i : 0 .. MOST - 1) {
        if
        :: IS_NOW(i) && !STREAMS(i) ->
            count = held_extent[number * MOST + i];
            MUST_HOLD(g_owner[count] == REF(HOLDS(i), i), g_handed_out_again);
            if
            :: asked[number] < LAST_STEP -> kept[count] = (whole -> REF(HOLDS(i), i) : TORN)
            :: else -> result[count] = (whole -> REF(HOLDS(i), i) : TORN)
            fi
        :: else -> skip
        fi
    }
    count = 0
}

inline store_done(at) {
    MUST_HOLD(IS_OPEN(REF(HOLDS(at), at)), g_answered_twice);
    done[at] = HOLDS(at)
}

inline post_answer(at) { answered[number]!REF(HOLDS(at), at) }

/* shm/parts.py: PartWriter._publish */
inline put(at) {
    count = held_extent[number * MOST + at];
    MUST_HOLD(g_owner[count] == REF(HOLDS(at), at), g_handed_out_again);
    result[count] = PART_OF(REF(HOLDS(at), at));
    parts_end[at] = !parts_end[at];
    g_out[at] = 1;
    count = 0
}

/* shm/part_notices.py: PartNotices.post. What finds no room waits for the answer, which makes it needless. */
inline post_notices() {
    for (i : 0 .. MOST - 1) {
        if
        :: HAS_PUT(i) && IS_NOW(i) && len(completions[number]) < SLOTS ->
            completions[number]!NOTICE + REF(HOLDS(i), i)
        :: else -> skip
        fi
    }
}

/* engine/worker/runner.py: Runner._answer_step. A step before the last answers nobody. */
inline let_pass(at) {
    HOLDS(at) = 0;
    held_extent[number * MOST + at] = 0
}

inline answer(at) {
#ifndef DONE_FIRST
    store_done(at);
#endif
#ifndef POST_FIRST
    post_answer(at);
#endif
    HOLDS(at) = 0;
    held_extent[number * MOST + at] = 0
}

/* engine/worker/runner.py: Runner._fail */
inline answer_failure(at) {
    count = held_extent[number * MOST + at];
    MUST_HOLD(g_owner[count] == REF(HOLDS(at), at), g_handed_out_again);
    result[count] = REF(HOLDS(at), at);
    count = 0;
    answer(at)
}

inline each_held_first() {
#ifdef DONE_FIRST
    if
    :: HOLDS(0) -> store_done(0)
    :: else -> skip
    fi;
    if
    :: HOLDS(1) -> store_done(1)
    :: else -> skip
    fi;
#endif
#ifdef POST_FIRST
    if
    :: HOLDS(0) -> post_answer(0)
    :: else -> skip
    fi;
    if
    :: HOLDS(1) -> post_answer(1)
    :: else -> skip
    fi;
    flush(number);
#endif
    skip
}

inline release_task(number) {
#ifndef RELEASE_FIRST
    tasks[number]?_,_,_,_
#else
    skip
#endif
}

inline report(number) {
    reports[number]!given[number * MOST],given[number * MOST + 1],giver[number]
}

proctype worker(byte number) {
end:
    do

    /* engine/supervisor/process_manager.py: ProcessManager.spawn; engine/worker/role.py: _publish_state() */
    :: d_step {
            worker_at[number] == ABSENT && may_start[number] ->
            may_start[number] = 0;
            says_ready[number] = 1;
            worker_at[number] = BEGINNING
        }

    /* engine/worker/worker.py: Worker.begin */
    :: d_step {
            worker_at[number] == BEGINNING ->
            reports[number]!0,0,0;
            worker_at[number] = ASLEEP
        }

    /* engine/worker/worker.py: Worker.step; shm/ring.py: Consumer.peek */
    :: d_step {
            !STEPS && worker_at[number] == ASLEEP && HAS(tasks[number]) ->
            tasks[number]?<HOLDS(0),HOLDS(1),asked[number],giver[number]>;
            given[number * MOST] = HOLDS(0);
            given[number * MOST + 1] = HOLDS(1);
#ifdef RELEASE_FIRST
            tasks[number]?_,_,_,_;
#endif
#ifdef FINE
            worker_at[number] = TAKEN
#else
            read_requests();
            worker_at[number] = RUNNING
#endif
        }

    /* In steps: the tasks that rows join of. engine/worker/steps_worker.py: StepsWorker._take_tasks;
     * shm/ring.py: Consumer.peek */
    :: d_step {
            STEPS && worker_at[number] == ASLEEP && HAS(tasks[number]) ->
            peek_all(tasks[number]);
#ifdef RELEASE_UNJOINED
            release_peeked();
#endif
            worker_at[number] = JOINING
        }

    /* BATCH and what is about it, then JOINED, one slot after the other. shm/joined.py: JoinedRows.join */
    :: d_step { worker_at[number] == JOINING && JOINS(0) -> join(0) }
    :: d_step { worker_at[number] == JOINING && !JOINS(0) && JOINS(1) -> join(1) }

    /* engine/worker/steps_worker.py: StepsWorker._take_tasks; shm/ring.py: Consumer.release;
     * engine/worker/codec.py: Codec.read */
    :: d_step {
            worker_at[number] == JOINING && !JOINS(0) && !JOINS(1) ->
            release_peeked();
            read_requests();
            begin_rows();
            worker_at[number] = (PICKED(0) || PICKED(1) -> ANSWERING : ASLEEP)
        }

    /* A step in which a row gives a part. engine/worker/part_stream.py: PartStream.put */
    :: d_step {
            STEPS && worker_at[number] == ASLEEP && STREAMS(0) && !HAS_PUT(0) ->
            PICKED(0) = 1;
            put(0);
            worker_at[number] = YIELDED
        }
    :: d_step {
            STEPS && worker_at[number] == ASLEEP && STREAMS(1) && !HAS_PUT(1) ->
            PICKED(1) = 1;
            put(1);
            worker_at[number] = YIELDED
        }

    /* A step with which rows end. engine/worker/codec.py: Codec.write, the first byte of a result */
    :: atomic {
            STEPS && worker_at[number] == ASLEEP && (HOLDS(0) || HOLDS(1)) ->
            if
            :: HOLDS(0) -> PICKED(0) = 1
            :: HOLDS(1) -> PICKED(1) = 1
            :: HOLDS(0) && HOLDS(1) -> PICKED(0) = 1; PICKED(1) = 1
            fi;
            write_results(false);
            worker_at[number] = WRITING
        }

    /* engine/worker/runner.py: Runner.run; engine/worker/codec.py: Codec.read; shm/engine_slots.py:
     * EngineSlots.read */
    :: d_step {
            worker_at[number] == TAKEN ->
            read_requests();
            worker_at[number] = RUNNING
        }

    /* What another worker has begun: engine/worker/parts_runner.py: PartsRunner._run_readable,
     * PartsRunner._fail; shm/engine_slots.py: EngineSlots.answer */
    :: d_step { worker_at[number] == RUNNING && IS_BEGUN(0) -> answer(0) }
    :: d_step { worker_at[number] == RUNNING && !IS_BEGUN(0) && IS_BEGUN(1) -> answer(1) }

    /* The model yields. engine/worker/parts_runner.py: PartsRunner._parts */
    :: d_step {
            RUNS_NOW && (STREAMS(0) || STREAMS(1)) ->
            begin_run();
            worker_at[number] = YIELDED
        }

    /* engine/worker/parts_runner.py: PartsRunner._put, one after the other; engine/worker/part_stream.py:
     * PartStream.put */
    :: d_step { !STEPS && worker_at[number] == YIELDED && STREAMS(0) && !HAS_PUT(0) -> put(0) }
    :: d_step {
            !STEPS && worker_at[number] == YIELDED && STREAMS(0) == HAS_PUT(0) && STREAMS(1) &&
                !HAS_PUT(1) ->
            put(1)
        }

    /* shm/engine_slots.py: EngineSlots.post_part, EngineSlots.flush, the ring; shm/part_notices.py: PartNotices.post */
    :: d_step {
            worker_at[number] == YIELDED &&
                (STEPS || (STREAMS(0) == HAS_PUT(0) && STREAMS(1) == HAS_PUT(1))) ->
            post_notices();
            flush(number);
            worker_at[number] = NOTICED
        }

    /* shm/part_notices.py: PartNotices.post, the doorbell */
    :: d_step {
            worker_at[number] == NOTICED ->
            lane_bell = 1;
            unpick();
            worker_at[number] = (STEPS -> ASLEEP : GOING_ON)
        }

    /* engine/worker/codec.py: Codec.write, the first byte of a result */
    :: d_step {
            RUNS_NOW ->
            begin_run();
            each_held_first();
            write_results(false);
            worker_at[number] = WRITING
        }

    /* The same, joined: engine/worker/parts_runner.py: PartsRunner._end */
    :: d_step {
            worker_at[number] == GOING_ON ->
            each_held_first();
            write_results(false);
            worker_at[number] = WRITING
        }

    /* engine/worker/codec.py: Codec.write, the last byte */
    :: d_step {
            worker_at[number] == WRITING ->
            write_results(true);
            worker_at[number] = ANSWERING
        }

    /* shm/engine_slots.py: EngineSlots.answer, EngineSlots.answer_uniform, EngineSlots.answer_later_step, one
     * after the other */
    :: d_step { worker_at[number] == ANSWERING && IS_NOW(0) && ANSWERS(number) -> answer(0) }
    :: d_step {
            worker_at[number] == ANSWERING && !IS_NOW(0) && IS_NOW(1) && ANSWERS(number) -> answer(1)
        }

    /* engine/worker/runner.py: Runner._answer_step */
    :: d_step { worker_at[number] == ANSWERING && HOLDS(0) && !ANSWERS(number) -> let_pass(0) }
    :: d_step {
            worker_at[number] == ANSWERING && !HOLDS(0) && HOLDS(1) && !ANSWERS(number) ->
            let_pass(1)
        }

    /* engine/worker/runner.py: Runner._fail. In the last step a failure is an answer like any. */
    :: d_step { worker_at[number] == ANSWERING && HOLDS(0) && !ANSWERS(number) -> answer_failure(0) }
    :: d_step {
            worker_at[number] == ANSWERING && !HOLDS(0) && HOLDS(1) && !ANSWERS(number) ->
            answer_failure(1)
        }

    /* shm/engine_slots.py: EngineSlots.flush, the ring */
    :: d_step {
            worker_at[number] == ANSWERING && !IS_NOW(0) && !IS_NOW(1) ->
            flush(number);
            unpick();
            worker_at[number] = WAKING
        }

    /* shm/engine_slots.py: EngineSlots.flush, the doorbell */
    :: d_step { !STEPS && worker_at[number] == WAKING -> lane_bell = 1; worker_at[number] = RELEASING }
    :: d_step {
            STEPS && worker_at[number] == WAKING ->
            lane_bell = 1;
            worker_at[number] = (IS_TO_REPORT -> REPORTING : ASLEEP)
        }

    /* engine/worker/worker.py: Worker.step; shm/ring.py: Consumer.release */
    :: d_step {
            worker_at[number] == RELEASING ->
#ifdef REPORT_FIRST
            report(number);
#else
            release_task(number);
#endif
            worker_at[number] = REPORTING
        }

    /* engine/worker/worker.py: Worker._report */
    :: d_step {
            !STEPS && worker_at[number] == REPORTING ->
#ifdef REPORT_FIRST
            release_task(number);
#else
            report(number);
#endif
            given[number * MOST] = 0;
            given[number * MOST + 1] = 0;
            asked[number] = 0;
            giver[number] = 0;
            worker_at[number] = ASLEEP
        }

    /* In steps. engine/worker/steps_worker.py: StepsWorker._report_ended, StepsWorker._report */
    :: d_step {
            STEPS && worker_at[number] == REPORTING ->
            report_answered();
            worker_at[number] = (IS_TO_REPORT -> REPORTING : ASLEEP)
        }

    /* engine/worker/worker.py: Worker.step, again every RETRY_S where something found no room */
    :: d_step {
            worker_at[number] == ASLEEP && CAN_FLUSH(number) ->
            flush(number);
            worker_at[number] = RINGING
        }
    :: d_step { worker_at[number] == RINGING -> lane_bell = 1; worker_at[number] = ASLEEP }

    /* Its death. engine/supervisor/child_process.py: Child.kill */
    :: d_step {
            worker_at[number] != ABSENT && (worker_deaths_left || must_end[number]) ->
            worker_deaths_left = worker_deaths_left - !must_end[number];
            must_end[number] = 0;
            for (i : number * MOST .. number * MOST + MOST - 1) {
                held[i] = 0;
                held_extent[i] = 0;
                given[i] = 0;
                picked[i] = 0;
                stored[i] = 0
            }
            peeked[number] = 0;
            joint[number] = 0;
            asked[number] = 0;
            giver[number] = 0;
            lose_answered(number);
            is_dead[number] = 1;
            worker_at[number] = ABSENT
        }

    /* engine/supervisor/supervisor.py: Supervisor.on_ended; shm/segment.py: Segment.worker_ended */
    :: d_step {
            is_dead[number] ->
            is_dead[number] = 0;
#ifndef DEATH_LEAVES_STATE
            says_ready[number] = 0;
#endif
            told_dead[number] = 1;
#ifdef RESTART_UNRECLAIMED
            may_start[number] = 1
#endif
        }
    od
}
