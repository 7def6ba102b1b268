"""The bound on inline segments, as a stage sets it: small segments become items of the log table (docs/adr/0064)."""

from penstock_core.limits import INLINE_BYTES_MAX

VARIABLE = "PENSTOCK_INLINE_BYTES_MAX"


def parse_inline_bytes_max(text: str | None) -> int:
    """The bytes of the largest inline segment, 0 for no text. Raises ValueError beyond 0 to `INLINE_BYTES_MAX`."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and int(text) <= INLINE_BYTES_MAX):
        raise ValueError(f"{VARIABLE}={text!r:.100}: give 0 to {INLINE_BYTES_MAX} bytes, 0 to put none there")
    return int(text)
