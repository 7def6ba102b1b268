"""The log of one partition: refs, segments, the index, retention, and the topic that it belongs to."""
