"""Explores the lanes of push subscriptions, breadth first: `python -m tests.push_checker`.

The shipped functions of `penstock_core.push.lane` decide. Around them is the smallest service that delivers: heads with
a waiter, a stream, a queue, instances, an operator. Any instance may die or freeze between any two of its calls, the
queue may deliver a message twice, any answer may be lost, and time may pass at any moment. There is no look.
"""
