"""Values that show their name and whether they are whole: `name`, or `name|padding` with padding made of the name."""

from hashlib import sha256

from tests.history.format import Source


def make_value(name: str, size_bytes: int = 0) -> bytes:
    """Make a record's value of about this size. No two names give the same value."""
    text = name.encode()
    if size_bytes <= len(text):
        return text
    return text + b"|" + _padding(text, size_bytes - len(text) - 1)


def name_of(value: bytes | None) -> str:
    """Return the name of a value. If `make_value` did not make it, return a name that no producer ever sent."""
    if value is None:
        return "not a value: null"
    text, bar, padding = value.partition(b"|")
    if bar and padding != _padding(text, len(padding)):
        return f"not a value: {sha256(value).hexdigest()}"
    return text.decode(errors="replace")


def made_of(process: str, topic: str, partition: int, offset: int) -> str:
    """Make the name of a record that `process` made from the one at this place."""
    return f"{process}@{topic}@{partition}@{offset}"


def made_from(name: str) -> Source | None:
    """Return the place of the record that this one was made from, None if it was made from none."""
    parts = name.split("@")
    return (parts[1], int(parts[2]), int(parts[3]), "") if len(parts) == 4 else None


def _padding(text: bytes, length: int) -> bytes:
    block = sha256(text).hexdigest().encode()
    return (block * (length // len(block) + 1))[:length]
