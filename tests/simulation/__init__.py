"""The simulator (docs/contributing/simulation.md): real use cases and stores run on tables in memory.

A seed decides the schedule and the faults. `python -m tests.simulation --seed N --trace` replays one run, and
`--seeds A..B` runs many. The rooms, each of which knows only those above it:

    engine      scheduler, faults, and what all parts of a run share
    oracle      the log as it must be, and the checks of every effect
    service     function instances, the stores that they call, and how clients reach them
    clients     producers, readers, operators and group members
    workloads   what clients and jobs do in a run
    verdict     what must hold once a run has ended
    mutants     defects that the simulator must find
"""
