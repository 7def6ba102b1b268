"""One partition that many producers share: appends a second, by simulation and on the local stack."""
