"""Benches: they measure Penstock on the deployed local stack. docs/performance.md has the figures.

Each module of this folder is a command: `python -m bench.stack --help`. So are `bench.bill`,
`bench.kafka`, `bench.neighbours` and `bench.share_groups`.
`--write` keeps a result in `results/`, and `python -m bench.pages` puts all results into the pages of
docs/performance/.

| folder | holds |
|---|---|
| `loads` | the work that benches measure |
| `meters` | what counts calls, units, CPU and processes |
| `report` | results, their JSON and the pages |
"""
