"""The commands that send and read records, and the lines that hold them."""
