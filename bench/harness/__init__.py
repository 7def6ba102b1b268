"""The shared parts of all questions: turns in alternating order, medians with their spread, their list, plots."""
