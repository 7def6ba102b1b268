"""Mutants of the expressions that ship: each condition, each clause of an update, and each bound is spoiled in turn."""
