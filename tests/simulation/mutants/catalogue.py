"""Every mutant that the simulator must find."""

from tests.simulation.mutants.audit_mutants import AUDIT_MUTANTS
from tests.simulation.mutants.claim_mutants import CLAIM_MUTANTS
from tests.simulation.mutants.compaction_mutants import COMPACTION_MUTANTS
from tests.simulation.mutants.draining_mutants import DRAINING_MUTANTS
from tests.simulation.mutants.filter_mutants import FILTER_MUTANTS
from tests.simulation.mutants.generated_mutants import GENERATED_MUTANTS
from tests.simulation.mutants.generation_mutants import GENERATION_MUTANTS
from tests.simulation.mutants.group_mutants import GROUP_MUTANTS
from tests.simulation.mutants.inline_mutants import INLINE_MUTANTS
from tests.simulation.mutants.job_mutants import JOB_MUTANTS
from tests.simulation.mutants.push_failure_mutants import PUSH_FAILURE_MUTANTS
from tests.simulation.mutants.push_mutants import PUSH_MUTANTS
from tests.simulation.mutants.roll_mutants import ROLL_MUTANTS
from tests.simulation.mutants.service_mutants import SERVICE_MUTANTS
from tests.simulation.mutants.share_mutants import SHARE_MUTANTS
from tests.simulation.mutants.sleeping_mutants import SLEEPING_MUTANTS
from tests.simulation.mutants.tiering_mutants import TIERING_MUTANTS
from tests.simulation.mutants.timer_mutants import TIMER_MUTANTS
from tests.simulation.mutants.transaction_mutants import TRANSACTION_MUTANTS
from tests.simulation.mutants.waiting_mutants import WAITING_MUTANTS

MUTANTS = (
    *SERVICE_MUTANTS,
    *ROLL_MUTANTS,
    *TRANSACTION_MUTANTS,
    *WAITING_MUTANTS,
    *TIMER_MUTANTS,
    *DRAINING_MUTANTS,
    *GENERATION_MUTANTS,
    *FILTER_MUTANTS,
    *JOB_MUTANTS,
    *GROUP_MUTANTS,
    *COMPACTION_MUTANTS,
    *TIERING_MUTANTS,
    *SHARE_MUTANTS,
    *PUSH_MUTANTS,
    *PUSH_FAILURE_MUTANTS,
    *CLAIM_MUTANTS,
    *AUDIT_MUTANTS,
    *INLINE_MUTANTS,
    *SLEEPING_MUTANTS,
    *GENERATED_MUTANTS,
)
