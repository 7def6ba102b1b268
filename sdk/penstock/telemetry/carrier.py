"""Record headers as a carrier of trace context, for the propagator that the application has chosen.

The default propagator writes `traceparent`, `tracestate` (https://www.w3.org/TR/trace-context/) and `baggage`. A header
that the application has set itself is never replaced.
"""

from collections.abc import Iterable, Sequence

from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter, Setter
from opentelemetry.trace import SpanContext, get_current_span

from penstock_core.limits import SDK_SPAN_LINKS_MAX
from penstock_core.records.codec import Headers

_HeaderMap = dict[str, bytes | None]


class _HeaderGetter(Getter[_HeaderMap]):
    """Reads headers as texts. A header that is no text counts as absent."""

    def get(self, carrier: _HeaderMap, key: str) -> list[str] | None:
        value = carrier.get(key)
        try:
            return None if value is None else [value.decode()]
        except UnicodeDecodeError:
            return None

    def keys(self, carrier: _HeaderMap) -> list[str]:
        return list(carrier)


class _HeaderSetter(Setter[_HeaderMap]):
    def set(self, carrier: _HeaderMap, key: str, value: str) -> None:
        carrier.setdefault(key, value.encode())


_GETTER = _HeaderGetter()
_SETTER = _HeaderSetter()


def context_in(headers: Headers) -> Context:
    """The context that these headers carry: empty, if they carry none. Of a name that comes twice the last counts."""
    return propagate.extract(dict(headers), context=Context(), getter=_GETTER)


def origin_in(headers: Headers) -> SpanContext | None:
    """The creation context in these headers, None if there is none that is valid."""
    if not headers:
        return None
    origin = get_current_span(context_in(headers)).get_span_context()
    return origin if origin.is_valid else None


def with_context(headers: Headers, context: Context | None = None) -> Headers:
    """The headers, and behind them those of the context, by default of the current one."""
    carrier: _HeaderMap = dict(headers)
    known = len(carrier)
    propagate.inject(carrier, context=context, setter=_SETTER)
    return headers if len(carrier) == known else (*headers, *list(carrier.items())[known:])


def origins_in(records_headers: Iterable[Headers]) -> Sequence[SpanContext]:
    """The creation contexts of these records, each once, `SDK_SPAN_LINKS_MAX` at most."""
    origins: dict[tuple[int, int], SpanContext] = {}
    for headers in records_headers:
        origin = origin_in(headers)
        if origin is not None:
            origins[origin.trace_id, origin.span_id] = origin
            if len(origins) == SDK_SPAN_LINKS_MAX:
                break
    return list(origins.values())
