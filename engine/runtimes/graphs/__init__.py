"""Runtimes for graphs: ONNX and OpenVINO.

Enters: the file of a graph. Leaves: a `Model`. Read first: onnx.py.
"""
