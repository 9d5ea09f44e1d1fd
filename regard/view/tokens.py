"""Token text as it may be shown: a token comes from anybody's file and may hold anything.

Escape codes would steer a terminal, bidirectional controls would reorder a page, NUL breaks XML, and a space
cannot be seen.
"""

import html
import unicodedata

INVISIBLE = {" ": "␣", "\u00a0": "␣", "\u3000": "␣", "\t": "⇥", "\n": "↵", "\u2028": "↵", "\u2029": "¶"}


def shown(token: str) -> str:
    """A token with its spaces and controls made visible; an empty token is `∅`."""
    return "".join(INVISIBLE.get(character) or _visible(character) for character in token) or "∅"


def shown_text(text: str) -> str:
    """A sentence on one line: spaces stay spaces, controls are made visible."""
    return "".join(" " if character.isspace() else _visible(character) for character in text)


def escaped(value: object) -> str:
    """A text, or what one reads of something else, for an HTML page."""
    return html.escape(shown_text(str(value)))


def _visible(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)  # control pictures
    if code == 0x7F:
        return "␡"
    category = unicodedata.category(character)
    if category == "Cf":  # format characters: joiners are part of words, the rest is not for showing
        return character if character in "\u200c\u200d" else "·"
    return "\ufffd" if category in ("Cc", "Cs") or code in (0xFFFE, 0xFFFF) else character
