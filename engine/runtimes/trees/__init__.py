"""Runtimes for trees: XGBoost, LightGBM and CatBoost.

Enters: the file of a tree model. Leaves: a `Model`, and columns of tables for scikit-learn's
runtime. Read first: signature.py, then xgboost.py.
"""
