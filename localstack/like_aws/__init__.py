"""Rules of AWS that the emulator lacks, put between its requests and itself (docs/adr/0032).

MiniStack's Python runs this package inside the emulator. So it imports the standard library and itself only; `workers`
and `directory_buckets` also take what they need from MiniStack.
"""
