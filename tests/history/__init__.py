"""The history checker: judges what producers, consumers and operators saw (docs/history.md).

`check` judges a history, `Recorder` writes one, `python -m tests.history FILE` does it from a shell.
"""
