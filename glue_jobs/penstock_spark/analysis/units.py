"""Formats numbers for people."""

_COUNTS = ("", "k", "M", "G", "T")
_BYTES = ("B", "kB", "MB", "GB", "TB", "PB")
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_NAME_MAX = 32
_TIMES = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def shorten(name: str) -> str:
    """A name for a small space: the start and the end of a long name."""
    return name if len(name) <= _NAME_MAX else f"{name[: _NAME_MAX - 9]}…{name[-8:]}"


def format_count(value: float) -> str:
    """Such as `950`, `1.2k`, `35M`."""
    return _scaled(value, 1000, _COUNTS, "")


def format_bytes(value: float, base: int = 1000) -> str:
    """Such as `950 B`, `1.2 kB`; with base 1,024 `1.2 KiB`."""
    return _scaled(value, base, _BYTES if base == 1000 else _BINARY, " ")


def format_ms(value: float | None) -> str:
    """Such as `120 ms`, `3.5 s`, `2.1 h`; `–` for None."""
    if value is None:
        return "–"
    for unit_ms, unit in _TIMES:
        if abs(value) >= unit_ms:
            return f"{_short(value / unit_ms)} {unit}"
    return f"{_short(value)} ms"


def format_percent(share: float) -> str:
    """Such as `12%`, `0.4%`."""
    percent = share * 100
    return f"{percent:.0f}%" if percent >= 10 or percent == 0 else f"{percent:.1f}%" if percent >= 0.1 else "<0.1%"


def _scaled(value: float, base: int, units: tuple[str, ...], gap: str) -> str:
    step = 0
    while abs(value) >= base and step < len(units) - 1:
        value, step = value / base, step + 1
    return f"{_short(value)}{gap}{units[step]}".strip() if units[step] else _short(value)


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.1f}"
