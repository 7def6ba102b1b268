"""The history checker judges what producers, consumers and operators saw (docs/contributing/history.md).

`Recorder` writes a history, `check` judges it, and so does `python -m tests.history FILE`. `model` holds the facts of
a history, and `checks` looks for anomalies in them.
"""
