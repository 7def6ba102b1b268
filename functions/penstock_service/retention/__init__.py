"""The use cases that remove data: retention and the sweep."""
