"""Benches: they measure Penstock on the deployed local stack. docs/performance.md has the figures.

`python -m bench list` shows each question with its command: `python -m bench.stack --help`.
`--write` keeps a result in `results/`, and `python -m bench.pages` puts all results into the pages of
docs/performance/.

| folder | holds |
|---|---|
| `harness` | turns, spread, the list of questions, plots |
| `loads` | the work that benches measure |
| `meters` | what counts calls, units, CPU and processes |
| `report` | results, their JSON and the pages |
"""
