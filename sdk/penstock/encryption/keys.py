"""The keys that data keys are wrapped by: KMS keys, or bytes of your own.

A data key encrypts values. It travels next to them, wrapped by one of these keys, and bound to a context: the topic
that the record was sent to, and what you add. To unwrap it, a reader has to name the same context, which KMS checks and
logs.
"""

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from penstock.arguments import check
from penstock.errors import AccessDeniedError, CorruptError, NotConfiguredError, UnavailableError
from penstock.system import random_bytes
from penstock_core.errors import ErrorCode, PenstockError

KEY_BYTES = 32
NONCE_BYTES = 12
_ARN = re.compile(r"arn:aws[a-z-]*:kms:([a-z0-9-]+):[0-9]{12}:key/([A-Za-z0-9-]+)")
_FILE_BYTES_MAX = 1_000_000
_TIMEOUT_S = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DataKey:
    """A data key of 32 bytes, and the same wrapped by the key `key_id`."""

    key_id: str
    plaintext: bytes = field(repr=False)
    wrapped: bytes


class Keys(Protocol):
    """A key service, as `Encryption` asks it. Both methods may take the time of a network call."""

    def new_data_key(self, context: Mapping[str, str]) -> DataKey:
        """A new data key, bound to the context. Raises AccessDeniedError and UnavailableError."""

    def unwrap(self, key_id: str, wrapped: bytes, context: Mapping[str, str]) -> bytes:
        """The data key that was wrapped by the key. Raises as `new_data_key`, and CorruptError for changed bytes."""


class KmsKeys:
    """KMS keys by their ARNs. The first one wraps new data keys, and all of them unwrap old ones.

    A key that is not here unwraps nothing, wherever a record says that it comes from. The replica of a multi-Region key
    stands for the key of each region. A data key takes `kms:GenerateDataKey`, and to unwrap one takes `kms:Decrypt`.
    `client` replaces botocore's client of KMS in the key's region.
    """

    def __init__(self, *arns: str, client: Any = None) -> None:
        check(bool(arns), "KmsKeys(): give the ARN of a key at least")
        for arn in arns:
            check(
                isinstance(arn, str) and _ARN.fullmatch(arn) is not None,
                f"KMS key {arn!r:.200}: give its ARN, arn:aws:kms:<region>:<account>:key/<id>; of an alias "
                "`aws kms describe-key --key-id alias/NAME` tells it",
            )
        self._arns = arns
        self._client = client
        self._clients: dict[str, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Connections do not travel to another process."""
        return {**self.__dict__, "_clients": {}}

    def new_data_key(self, context: Mapping[str, str]) -> DataKey:
        """One GenerateDataKey."""
        found = self._call("generate_data_key", self._arns[0], context, KeySpec="AES_256")
        return DataKey(key_id=found["KeyId"], plaintext=found["Plaintext"], wrapped=found["CiphertextBlob"])

    def unwrap(self, key_id: str, wrapped: bytes, context: Mapping[str, str]) -> bytes:
        """One Decrypt."""
        arn = next((each for each in self._arns if each.partition("/")[2] == key_id.partition("/")[2]), None)
        if arn is None:
            raise _unknown_key(key_id, self._arns)
        plaintext: bytes = self._call("decrypt", arn, context, CiphertextBlob=wrapped)["Plaintext"]
        return plaintext

    def _call(self, name: str, arn: str, context: Mapping[str, str], **options: Any) -> Any:
        # slow to import, and other keys need none of it
        from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

        try:
            return getattr(self._client_of(arn), name)(KeyId=arn, EncryptionContext=dict(context), **options)
        except ClientError as error:
            raise _refused(name, arn, context, error.response["Error"]) from error
        except BotoCoreError as error:
            if name == "decrypt" and isinstance(error, ParamValidationError):  # what a record's header says
                raise _changed(arn) from error
            raise UnavailableError(
                ErrorCode.STORAGE_UNAVAILABLE, f"KMS could not be asked for {arn}: {error}"
            ) from error

    def _client_of(self, arn: str) -> Any:
        if self._client is not None:
            return self._client
        region = arn.split(":")[3]
        if region not in self._clients:
            import botocore.session
            from botocore.config import Config

            config = Config(
                connect_timeout=_TIMEOUT_S, read_timeout=_TIMEOUT_S, retries={"mode": "standard", "max_attempts": 3}
            )
            self._clients[region] = botocore.session.Session().create_client("kms", region_name=region, config=config)
        return self._clients[region]


class LocalKeys:
    """Keys of your own by name, each of 32 random bytes. The first one wraps new data keys, all unwrap old ones.

    For tests, for `penstock dev`, and where there is no KMS. A program that has the bytes reads the values.
    """

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        check(isinstance(keys, Mapping) and bool(keys), "LocalKeys: give a mapping of names to keys of 32 bytes")
        for number, (name, key) in enumerate(keys.items(), 1):
            is_key = isinstance(name, str) and isinstance(key, bytes) and len(key) == KEY_BYTES
            kinds = f"{type(name).__name__} to {type(key).__name__}"  # names and keys may be swapped, so tell neither
            how = f"give a str to {KEY_BYTES} bytes, such as os.urandom({KEY_BYTES})"
            check(is_key, f"pair {number} of LocalKeys maps {kinds}: {how}")
        self._keys = dict(keys)

    @classmethod
    def from_file(cls, path: str | Path) -> "LocalKeys":
        """The keys of a JSON file, `{"2026-11": "<base64 of 32 bytes>"}`. Raises NotConfiguredError."""
        example = '{"2026-11": "<base64 of 32 bytes>"}'
        try:
            with Path(path).open("rb") as file:
                found = json.loads(file.read(_FILE_BYTES_MAX))
            return cls({name: base64.b64decode(text, validate=True) for name, text in found.items()})
        except OSError as error:
            raise NotConfiguredError(f"keys of {str(path)!r:.300}: {error.strerror}") from error
        except (ValueError, TypeError, AttributeError, PenstockError) as error:
            raise NotConfiguredError(f"keys of {str(path)!r:.300}: {error}; give {example}") from error

    def new_data_key(self, context: Mapping[str, str]) -> DataKey:
        """Random bytes, wrapped by AES-GCM."""
        key_id, key = next(iter(self._keys.items()))
        plaintext, nonce = random_bytes(KEY_BYTES), random_bytes(NONCE_BYTES)
        return DataKey(
            key_id=key_id, plaintext=plaintext, wrapped=nonce + aes_gcm(key).encrypt(nonce, plaintext, _bound(context))
        )

    def unwrap(self, key_id: str, wrapped: bytes, context: Mapping[str, str]) -> bytes:
        """Raises CorruptError for bytes or a context that were changed."""
        from cryptography.exceptions import InvalidTag

        if key_id not in self._keys:
            raise _unknown_key(key_id, self._keys)
        try:
            cipher, nonce = aes_gcm(self._keys[key_id]), wrapped[:NONCE_BYTES]
            plaintext: bytes = cipher.decrypt(nonce, wrapped[NONCE_BYTES:], _bound(context))
        except (InvalidTag, ValueError) as error:
            raise _changed(key_id) from error
        return plaintext


def keys_of(texts: tuple[str, ...]) -> Keys:
    """The keys that a command names: ARNs of KMS keys, or one `file:PATH`. Raises InvalidError, NotConfiguredError."""
    if len(texts) == 1 and texts[0].startswith("file:"):
        return LocalKeys.from_file(texts[0].removeprefix("file:"))
    return KmsKeys(*texts)


def aes_gcm(key: bytes) -> Any:
    """The cipher. Raises NotConfiguredError without the package."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise NotConfiguredError("encryption needs a package more: pip install 'penstock[encryption]'") from error
    return AESGCM(key)


def _bound(context: Mapping[str, str]) -> bytes:
    return json.dumps(context, sort_keys=True).encode()


def _refused(call: str, arn: str, context: Mapping[str, str], said: Mapping[str, str]) -> PenstockError:
    code, message = said.get("Code", ""), said.get("Message", "")
    action = "kms:GenerateDataKey" if call == "generate_data_key" else "kms:Decrypt"
    if code in ("InvalidCiphertextException", "IncorrectKeyException"):
        return _changed(arn)
    if code == "ValidationException" and call == "decrypt":  # of what a record's header says: the ARN was checked
        return _changed(arn)
    if code == "AccessDeniedException":
        return AccessDeniedError(
            ErrorCode.ACCESS_DENIED,
            f"your credentials lack {action} on {arn} with the context {dict(context)}: allow it in a policy of the "
            f"caller, and see that the key's policy lets IAM decide ({message:.300})",
            key_id=arn,
        )
    if code in ("DisabledException", "KMSInvalidStateException", "NotFoundException", "InvalidKeyUsageException"):
        return AccessDeniedError(
            ErrorCode.ACCESS_DENIED,
            f"{action} by {arn} is not possible: {message:.300}; enable the key, or cancel its deletion",
            key_id=arn,
        )
    return UnavailableError(ErrorCode.STORAGE_UNAVAILABLE, f"KMS refused {action} by {arn}: {code} {message:.300}")


def _unknown_key(key_id: str, known: Any) -> PenstockError:
    return AccessDeniedError(
        ErrorCode.ACCESS_DENIED,
        f"the value is encrypted by the key {key_id!r:.200}, and this client has {', '.join(known):.300}: add the key "
        "if you trust it",
        key_id=key_id[:200],
    )


def _changed(key_id: str) -> PenstockError:
    return CorruptError(
        ErrorCode.CORRUPT_BATCH, f"the data key of the value is not one that {key_id:.200} has wrapped for this context"
    )
