"""Benches: they measure Penstock on the deployed local stack, or on moto. docs/performance.md has the figures.

`python -m bench list` shows each question with its command: `python -m bench.stack --help`. `--write` keeps a result in
`results/`, and `python -m bench.pages` writes docs/performance/ from all results. `report` has results and tables,
`turns` lets sides take turns, and `loads` has the programs that benches run in processes of their own.
"""
