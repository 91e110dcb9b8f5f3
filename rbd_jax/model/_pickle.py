"""Pickle for the tree structures of models, as they belong to a serialized executable.

The structure of an Equinox module holds a mark for what it lacks, and Equinox knows the mark by its
identity. Pickle makes a copy, so that the structure that is read equals no other one, and cannot be
filled again. With this rule, pickle writes the name of the mark.
"""

import copyreg
from typing import Any

try:
    from equinox._module._flatten import MISSING
except ImportError:  # versions of Equinox that do without
    pass
else:

    def _name(mark: Any) -> str:
        return "MISSING"

    copyreg.pickle(type(MISSING), _name)
