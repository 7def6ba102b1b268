"""`penstock dev`: the whole service in one process, on 127.0.0.1, without AWS, Node or a checkout (docs/adr/0024)."""
