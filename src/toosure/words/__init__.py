"""Words name methods with their settings: "sam:base=adamw,rho=0.1" <-> (method, settings)."""

from toosure.words.method import Method, Setting, find, methods
from toosure.words.search import Choices, Range, SearchWord, parse_search
from toosure.words.tables import TABLES
from toosure.words.values import expand
from toosure.words.word import Word, parse, spell

__all__ = [
    "TABLES",
    "Choices",
    "Method",
    "Range",
    "SearchWord",
    "Setting",
    "Word",
    "expand",
    "find",
    "methods",
    "parse",
    "parse_search",
    "spell",
]
