"""The supervisor: starts, watches, restarts and stops all processes, and changes the served models.

Enters: a configuration, signals, messages of its processes. Leaves: processes, the model table
in the segment. Imports config, process, ipc and runtimes (model files). Read first: loop.py,
supervisor.py, process_manager.py, then change_plan.py, change_runner.py,
served_models.py and model_changes.py for models that come and go.
"""
