"""Money: counted operations times the price table. `capture` counts what AWS meters, for `penstock cost` as well."""
