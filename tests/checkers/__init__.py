"""Explores state machines that ship, breadth first: `python -m tests.checkers share`, or `push`.

- Share groups: three workers, four records, two keys. A call is planned on the state of one moment and applied at any
  later one, by the functions that the service runs. Any answer may be lost, any call may arrive twice, any worker may
  die, and time may pass at any moment.
- Lanes of push subscriptions: the shipped functions of `penstock_core.push.lane` decide. Around them is the smallest
  service that delivers: heads with a waiter, a stream, a queue, instances, an operator. Any instance may die or freeze
  between any two of its calls, the queue may deliver a message twice, any answer may be lost, and time may pass at any
  moment. There is no look.
"""
