"""The payload log: requests and their answers, kept for audit, drift detection and replay.

Enters: the bodies of sampled requests and answers, from the processes that serve. Leaves:
CloudEvents, to a server or a file. In between is a socket: a serving process gathers exchanges for
a moment and writes them to it without waiting, and the control process delivers the events.

Read first: exchange.py, events.py, recorder.py, gathering.py, messages.py, log.py.
"""
