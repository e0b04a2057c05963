"""The clients and what an algorithm may do with them: the verbs, placed values, oracles, the ledger.

A name is imported when it is first asked for: data and problems use the random numbers of this folder, and must not wait for the rest.
"""

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from .engine import Engine
    from .epochs import Epochs
    from .federation import Cohort, Federation
    from .ledger import Ledger
    from .oracles import (
        BilevelClient,
        Client,
        CompositionalClient,
        CompositionalMinimaxClient,
        ConditionalClient,
        MinimaxClient,
        MinimizationClient,
        PairwiseClient,
    )
    from .placed import Placed
    from .program import Program, RowSum, Schedule

__all__ = [
    "BilevelClient", "Client", "Cohort", "CompositionalClient", "CompositionalMinimaxClient", "ConditionalClient", "Engine", "Epochs",
    "Federation", "Ledger", "MinimaxClient", "MinimizationClient", "PairwiseClient", "Placed", "Program", "RowSum",
    "Schedule",
]

__getattr__, __dir__ = lazy(__name__, {
    "engine": ["Engine"], "epochs": ["Epochs"], "federation": ["Cohort", "Federation"], "ledger": ["Ledger"], "placed": ["Placed"],
    "oracles": ["BilevelClient", "Client", "CompositionalClient", "CompositionalMinimaxClient", "ConditionalClient", "MinimaxClient",
                "MinimizationClient", "PairwiseClient"],
    "program": ["Program", "RowSum", "Schedule"]})
