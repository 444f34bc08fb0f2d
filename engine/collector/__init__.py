"""Collector: takes requests out of the lanes, forms batches, hands them to workers, reads reports.

Enters: slots that were submitted, reports. Leaves: tasks, and answers to requests that are not run.
A batch closes in batching.py; requests that were with a worker that died go to quarantine.py.
agenda.py holds the models that have something to do. Imports ipc and process. Read first:
batching.py, dispatcher.py, then collector.py.
"""
