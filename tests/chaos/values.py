"""Values that say who they are and whether they are whole: `name` or `name|padding`, the padding made of the name."""

from hashlib import sha256


def make_value(name: str, size_bytes: int = 0) -> bytes:
    """A record's value of about that size; no two names give the same."""
    text = name.encode()
    if size_bytes <= len(text):
        return text
    return text + b"|" + _padding(text, size_bytes - len(text) - 1)


def name_of(value: bytes | None) -> str:
    """The name of a value, or, if it is not as `make_value` made it, something that nobody ever sent."""
    if value is None:
        return "not a value: null"
    text, bar, padding = value.partition(b"|")
    if bar and padding != _padding(text, len(padding)):
        return f"not a value: {sha256(value).hexdigest()}"
    return text.decode(errors="replace")


def _padding(text: bytes, length: int) -> bytes:
    block = sha256(text).hexdigest().encode()
    return (block * (length // len(block) + 1))[:length]
