"""Tables, zones and buckets."""
