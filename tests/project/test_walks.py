"""The page of walks tells the files that calls visit, as the code is now."""

import os
import subprocess
import sys

from support import walks


def test_the_page_of_walks_is_that_of_the_code(tmp_path):
    """In a process of its own, in which nothing was traced before."""
    tests = walks.PAGE.parents[1] / "tests"
    paths = os.pathsep.join([str(tests.parent), str(tests)])
    new = tmp_path / "walks.md"
    command = [sys.executable, str(tests / "support" / "walks.py"), str(new)]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": paths})
    assert new.read_text() == walks.PAGE.read_text(), "write it anew, see tests/support/walks.py"
