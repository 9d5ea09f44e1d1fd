import pytest

from regard.view.tokens import shown, shown_text


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("word", "word"),
        ("", "∅"),
        (" ", "␣"),
        ("a\nb", "a↵b"),
        ("\x1b[31m", "␛[31m"),
        ("\x00\x7f", "␀␡"),
        ("\x9b", "\ufffd"),
        ("a\u202eb", "a·b"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("\ud800", "\ufffd"),
        ("e\u0301 欧洲 😀", "e\u0301␣欧洲␣😀"),
    ],
)
def test_shown(token, expected):
    assert shown(token) == expected


def test_shown_text_is_one_line():
    assert shown_text("a\nb\u2028c\td \x1b") == "a b c d ␛"
