"""Lanes: a function of one sample becomes code that computes one sample in every SIMD lane."""

from ._api import clear_caches as clear_caches, lanes as lanes, trace_once as trace_once
from ._failures import LanesWarning as LanesWarning, Unsupported as Unsupported
from ._lowering import enabled as enabled, for_one_thread as for_one_thread
from ._report import Report as Report, report as report
from .frontend._common_rounds import common_rounds as common_rounds, unfilled as unfilled
from .frontend._sparse_cholesky import (
    columns_of as columns_of,
    factorized as factorized,
    factorized_solve as factorized_solve,
)
