"""Encryption of values by the sender (docs/how-to/encrypt.md): `Producer(encryption=Encryption(KmsKeys(ARN)))`.

It needs the extra `penstock[encryption]`.
"""

from penstock.encryption.keys import DataKey, Keys, KmsKeys, LocalKeys
from penstock.encryption.values import HEADER, Encryption

__all__ = ["HEADER", "DataKey", "Encryption", "Keys", "KmsKeys", "LocalKeys"]
