"""Opened models: the value that every runtime returns, model files, and metrics of a model's code.

Enters: a path and the options of a model. Leaves: `Model`: its signature and a function of arrays;
`ModelFile`: the file as it was when its version was opened. Runtimes, worker and supervisor import
it, process and ipc for `RuntimeOptions`; it imports shm alone. Read first: model.py, then
model_file.py.
"""
