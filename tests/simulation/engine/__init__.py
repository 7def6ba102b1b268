"""The machine of a run: the scheduler, the faults, and what all parts of a run share."""
