"""Share groups on the deployed local stack: kills, slow and failing records, beside SQS, and what they write.

| module | holds |
|---|---|
| `facts` | what a worker did, as lines of its ledger |
| `ledger_transport` | the transport that writes these lines |
| `verdict` | the judgement of all ledgers |
| `workers` | worker processes, and topics with a share group |
| all others | one bench each; `__main__` is their command |
"""
