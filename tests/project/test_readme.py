"""The README's commands name what exists. Its Python is run by ``tests/project/test_docs.py``."""

from support.pages import README, blocks


def test_python():
    code = "\n".join(blocks(README, "python"))
    assert "forward_dynamics" in code and "rollout" in code


def test_commands():
    text = "\n".join(blocks(README, "bash"))
    assert '".[demo]"' in text and "rbd-jax demo" in text
    assert '".[test]"' in text and "-m pytest" in text


def test_length():
    assert len(README.read_text().splitlines()) <= 110
