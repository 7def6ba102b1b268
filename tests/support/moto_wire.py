"""Lets moto answer the requests of direct clients, as it answers those of botocore's."""

from collections.abc import Mapping

import pytest
from botocore.awsrequest import AWSPreparedRequest, HeadersDict
from moto.core.models import botocore_stubber

from penstock_service.adapters.direct.connections import Connections, HttpAnswer


def answer_by_moto(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, connections end at moto. It answers while it is switched on (`mock_aws`)."""

    def send(connections: Connections, method: str, target: str, headers: Mapping[str, str], body: bytes) -> HttpAnswer:
        named = HeadersDict({"Host": connections.host, **headers, "Content-Length": str(len(body))})
        request = AWSPreparedRequest(method, f"{connections.origin}{target}", named, body, stream_output=False)
        answer = botocore_stubber("before-send", request)
        assert answer is not None, f"moto does not answer {method} {request.url}"
        return HttpAnswer(
            answer.status_code, {name.lower(): value for name, value in answer.headers.items()}, answer.content
        )

    monkeypatch.setattr(Connections, "send", send)
