"""MLPerf's LoadGen as an independent judge: it decides what is asked when, and what is VALID.

Enters: prepared requests, a rate, a limit. Leaves: what LoadGen said, how late the sender was, and
whether the answers in LoadGen's log are the right ones. It alone imports LoadGen, in a process of
its own. Nothing of it is an MLPerf result. Read first: plan.py, then queries.py.
"""
