"""Long texts in parts: nothing is lost, and their outputs become one."""

from regard.data.batch import Hypothesis
from regard.passage import join_part, split_long


def test_splitting():
    fits = lambda text: len(text) <= 10  # noqa: E731
    assert split_long("short", fits) == ["short"]
    for text in (
        "one two. three four. five",
        "x" * 50,
        "a b c d e f g h i j k l",
        "word " * 9,
        ". " * 30,
        "ab" + " " * 40,
    ):
        parts = split_long(text, fits)
        assert all(part.strip() and len(part) <= 10 for part in parts if not part.isspace())
        assert "".join("".join(parts).split()) == "".join(text.split()), "nothing is lost"
    assert split_long("one two. three four.", lambda text: len(text) <= 12) == ["one two. ", "three four."]


def test_joined_parts():
    one = Hypothesis((4,), -1.0, -2.0, "x", ("x",), ("s", "t"), ((1, 0),))
    two = Hypothesis((5, 6), -3.0, -4.0, "y z", ("y", "z"), ("u",), ((0, 0), (0, 1)), finished=False)
    whole = join_part([one, two])
    assert (whole.text, whole.log_probability, whole.finished) == ("x y z", -6.0, False)
    assert whole.alignment == ((1, 0), (2, 1), (2, 2))
