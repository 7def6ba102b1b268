"""Checks of this repository itself, which `make lint` runs. They are not part of the product.

| module     | owns                                                                  |
|------------|-----------------------------------------------------------------------|
| `sources`  | the list of files that a check looks at                               |
| `passages` | the prose of a file: Markdown, docstrings and comments                |
| `sentences`| the words and sentences of a passage, and the openers that we avoid   |
| `prose`    | `python -m tools.prose`: counts per scope, and the bounds on them     |
| `shape`    | `python -m tools.shape`: the length of functions, files and folders   |
"""
