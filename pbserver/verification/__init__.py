"""Does the store hold what it should? Every entity against its index rows, and every index row against its entity.

problem.py what can be wrong; checks.py what is wrong in one look; states.py looks and changes, whatever the store
promises; walk.py goes through the whole store; mending.py puts right what the entities tell; admin.py what
`pbserver verify` does.
"""

from pbserver.verification.mending import repair
from pbserver.verification.problem import Fault, Problem
from pbserver.verification.walk import Tally, known_projects, problems

__all__ = ["Fault", "Problem", "Tally", "known_projects", "problems", "repair"]
