"""Raw text → the text a tokenizer sees, and back: chosen in the run, stored in the model, applied at inference.

The order is Unicode form, lower case, Moses punctuation, Moses tokenisation: that of the Multi30k authors
(`lc.norm.tok`). Words are lower-cased before the Moses rules so that `bart.` at the end of a sentence is
split as theirs is.
"""

import re
import unicodedata
from typing import Literal

from regard.config import Text, UnicodeForm
from regard.data.text import replace_surrogates

Side = Literal["source", "target"]
# Addresses stay whole: their parts could not be put together again. The last character is no punctuation.
PROTECTED = (r"(?:https?|ftp)://[^\s<>\"]*[\w/]", r"[\w.+-]+@(?:[\w-]+\.)+[a-zA-Z]{2,}")
MOST_PROTECTED = 500  # in one line; sacremoses refuses more than 1000


class Normaliser:
    """Prepares the text of one side, and undoes on output what can be undone."""

    def __init__(self, options: Text, side: Side) -> None:
        self.options = options
        self.language = options.source_language if side == "source" else options.target_language
        self.form: UnicodeForm = options.source_unicode if side == "source" else options.target_unicode
        if options.moses:
            from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer

            self._punctuation = MosesPunctNormalizer(lang=self.language)
            self._tokeniser = MosesTokenizer(lang=self.language)
            self._detokeniser = MosesDetokenizer(lang=self.language)
            self._plain_detokeniser = MosesDetokenizer(lang="en")

    def __call__(self, raw: str) -> str:
        """Raw text → normalised text; nothing but white space gives nothing."""
        if not raw or raw.isspace():
            return ""
        text = replace_surrogates(raw)
        if self.form != "none":
            text = unicodedata.normalize(self.form, text)
        if self.options.lowercase:
            text = text.lower()
        return self._tokenise(text) if self.options.moses else text

    def _tokenise(self, text: str) -> str:
        # The Perl script sees the line's end as a character: without it `."` at the end would stay as it is.
        text = self._punctuation.normalize(text + "\n")
        count = sum(len(re.findall(pattern, text)) for pattern in PROTECTED)
        protected = list(PROTECTED) if 0 < count <= MOST_PROTECTED else None
        return str(self._tokeniser.tokenize(text, escape=False, return_str=True, protected_patterns=protected))

    def undo(self, text: str) -> str:
        """Moses tokens → running text; other text is left as it is."""
        if not self.options.moses:
            return text
        words = text.split()
        try:
            return str(self._detokeniser.detokenize(words, unescape=False))
        except TypeError:  # sacremoses 0.2.0 fails on Czech `x' - li`
            return str(self._plain_detokeniser.detokenize(words, unescape=False))
