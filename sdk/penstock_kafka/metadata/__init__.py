"""What clients ask before anything else: brokers, topics and coordinators."""
