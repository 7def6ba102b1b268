"""Numbers in headers and policies: decimal text of bounded length, compared exactly.

A header is bytes. It is a number if it has 1 to `FILTER_NUMBER_BYTES_MAX` bytes of ASCII: a sign if it is negative or
positive, digits with at most one point, and at most one exponent. `100`, `1e2` and `100.0` are equal. Text such as
`NaN`, `1_000` or ` 1` is no number. Decimals are exact, so 0.1 is 0.1 here, and no comparison depends on rounding.
"""

from decimal import Decimal, InvalidOperation

from penstock_core.limits import FILTER_NUMBER_BYTES_MAX

_DIGITS = b"0123456789+-.eE"
_EXPONENT_MAX = 99


def read_number(text: bytes) -> Decimal | None:
    """The number that the bytes spell, None if they spell none or one of magnitude 1e100 or above. Linear in its 32."""
    if not 1 <= len(text) <= FILTER_NUMBER_BYTES_MAX or text.translate(None, _DIGITS):
        return None
    try:
        number = Decimal(text.decode("ascii"))
    except InvalidOperation:
        return None
    return number if number.is_finite() and abs(number.adjusted()) <= _EXPONENT_MAX else None
