"""Mutants of the expressions that ship (tests/mutants), by their names. Interleavings show these within few seeds.

The contract suite finds all mutants of expressions. Here they prove that the simulator attacks the code that ships.
"""

from functools import partial

from tests.mutants.driver import installed, parse_mutant
from tests.simulation.mutants.mutant import Mutant

_NAMES = {
    "sharing": (
        "ShareStore.update update_item groups ConditionExpression: drop attribute_not_exists(#l.#n)",
        "ShareStore.update update_item groups ConditionExpression: drop #l.#n = :v",
        "ShareStore.update update_item groups ConditionExpression: drop #w.#n = :v",
    ),
    "groups": (
        "GroupStore.commit update_item groups ConditionExpression: "
        "drop attribute_not_exists(committed_offset) OR committed_offset <= :offset",
    ),
    "crowding": ("LogIndex.put_page put_item log ConditionExpression: drop attribute_not_exists(pk)",),
    "numbering": ("LogIndex.remove_producers update_item log ConditionExpression: drop producers.#p = :p",),
    "claiming": ("GroupStore.commit update_item groups ConditionExpression: drop attribute_exists(pk)",),
    "pushing": ("PushStore.put_delivery update_item groups ConditionExpression: drop version = :seen_version",),
    "transactions": (
        "TransactionStore.commit transact_write_items.Update log ConditionExpression: "
        "drop transaction_number = :before",
        "TransactionStore.commit transact_write_items.Update log ConditionExpression: drop epoch = :epoch",
    ),
    "timers": (
        "TimerStore.promote transact_write_items.Update log ConditionExpression: drop attribute_not_exists(settled_ms)",
        "TimerStore.cancel update_item log ConditionExpression: drop attribute_not_exists(settled_ms)",
    ),
}

GENERATED_MUTANTS = [
    Mutant(name, workload, partial(installed, parse_mutant(name)))
    for workload, names in _NAMES.items()
    for name in names
]
