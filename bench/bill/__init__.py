"""The bill: what AWS charges for single operations and for an unused stage, from captured calls and the price table.

The handlers run as in Lambda, on boto3 and moto. metered_calls.py captures each call that leaves, with the units and
bytes that AWS meters. deployment.py captures log lines and sizes. Nothing counts calls by hand: a new call raises the
bill, and tests/bench/bill and tests/infra/test_idle_bill.py hold the bill to the budgets of budgets.py.

The only assumption is the time of a function, because Penstock has not run on AWS yet (`FUNCTION_MS`).
"""
