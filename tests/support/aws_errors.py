"""Errors of AWS's services, as botocore raises them."""

from botocore.exceptions import ClientError


def client_error(code: str, status: int, operation: str = "Call") -> ClientError:
    answer = {"Error": {"Code": code, "Message": f"{code} it is"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, operation)
