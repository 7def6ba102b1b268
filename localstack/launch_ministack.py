"""Runs MiniStack with a compiled CRC-32C. MiniStack's Python runs this file; nothing here may import Penstock.

Its own CRC-32C is pure Python at 5 MB/s, and every produce puts its segment three times: with the compiled one, the
local stack takes 12 times as many MB/s (docs/performance.md). What is checked, and the outcome, are the same.
"""

import crc32c
from ministack.app import main
from ministack.services import s3

if s3._crc32c(b"123456789") != crc32c.crc32c(b"123456789"):
    raise RuntimeError("MiniStack's _crc32c is not what it was: see localstack/launch_ministack.py")
s3._crc32c = crc32c.crc32c
main()
