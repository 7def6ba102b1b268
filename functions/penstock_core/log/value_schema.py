"""The setting `value_schema` of a topic: where the schema of its values is, by which the job archive types them. Pure.

    json:s3://bucket/key    avro:s3://bucket/key    protobuf:s3://bucket/key#message
    registry:https://host[#subject[#message]]       registry:glue:NAME[#subject[#message]]

The service stores the text, and calls none of these places. The job checks the host of a registry when it calls it.
"""

import re

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.limits import VALUE_SCHEMA_LENGTH_MAX

NO_SCHEMA = ""
_OBJECT = (
    r"s3://[a-z0-9][a-z0-9.-]+/(?:[!-\"$-~]*[!-\"$-.0-~])"  # a key of printable ASCII, without # and a / at its end
)
_SUBJECT = r"(?:#[^\s#]*(?:#[\w.]+)?)?"
_PLACE = re.compile(
    rf"(?:json|avro):{_OBJECT}|protobuf:{_OBJECT}(?:#[\w.]+)?"
    rf"|registry:(?:https?://[^\s#@/?]+(?:/[^\s#@?]*)?|glue:[\w.$-]+){_SUBJECT}",
    re.ASCII,
)


def check_value_schema(value: object) -> str:
    """The place, or the empty text for none. Raises INVALID_CONFIG with the forms that there are."""
    if value == NO_SCHEMA or (
        isinstance(value, str) and len(value) <= VALUE_SCHEMA_LENGTH_MAX and _PLACE.fullmatch(value)
    ):
        return str(value)
    raise PenstockError(
        ErrorCode.INVALID_CONFIG,
        f"value_schema={shown(value)}: must be json:s3://bucket/key, avro:s3://bucket/key, "
        "protobuf:s3://bucket/key#message, registry:https://host#subject or registry:glue:name#subject, of at most "
        f"{VALUE_SCHEMA_LENGTH_MAX} characters",
    )
