"""Sizes as people write them: 100, 1KB, 64KiB, 4MiB."""

import re
from typing import Any

import click

_UNIT_BYTES = {"": 1, "B": 1, "KB": 1_000, "MB": 1_000_000, "KIB": 1_024, "MIB": 1_048_576}
_FORMAT = re.compile(r"([0-9]{1,12})(B|KB|MB|KIB|MIB|)", re.ASCII)


class Size(click.ParamType[int]):
    """A click type: a whole number of bytes, KB, MB, KiB or MiB becomes bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The bytes of the text. Fails with the format if it is no size."""
        match = _FORMAT.fullmatch(str(value).upper())
        if match is None:
            self.fail(f"{value!r:.100} is not a size: write bytes, or a number with KB, KiB, MB or MiB", param, ctx)
        return int(match[1]) * _UNIT_BYTES[match[2]]


SIZE = Size()
