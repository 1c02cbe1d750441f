"""YAML text → plain data, with the line of every key and item, for messages that point at the right place."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml

Path = tuple[str | int, ...]

_NODE_LIMIT = 10_000  # aliases can blow a small text up without end
_SCALARS = {
    "tag:yaml.org,2002:str",
    "tag:yaml.org,2002:int",
    "tag:yaml.org,2002:float",
    "tag:yaml.org,2002:bool",
    "tag:yaml.org,2002:null",
}
_COLLECTIONS = {"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}
_BAD_TAG = "has a tag that is not allowed; write plain text, numbers, true or false"
_WORDS = {
    "found undefined alias": "found undefined alias; write a text that begins with * in quotes",
    "found undefined tag handle": "found undefined tag handle; write a text that begins with ! in quotes",
    "found duplicate anchor": "found the same anchor twice; an anchor may stand once",
    "found character '\\t'": "found a tab; indent with blanks",
    "but found another document": "found another document; a config is one document",
}
"""The parser's words where they quote the text, which may be a secret, or where better ones exist."""


class YamlProblem(Exception):  # noqa: N818 - it is turned into a ConfigError by the loader, never seen outside
    """The text is no usable YAML. ``line`` counts from 1."""

    def __init__(self, line: int, path: Path, words: str) -> None:
        super().__init__(words)
        self.line = line
        self.path = path
        self.words = words


class _Loader(yaml.SafeLoader):
    """SafeLoader without dates: ``2026-12-01`` stays the text that was written."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(slots=True)
class YamlDocument:
    data: Any
    lines: dict[Path, int] = field(default_factory=dict)


def read_yaml(text: str) -> YamlDocument:
    """Raises:
    YamlProblem: Not YAML, several documents, a duplicate key, a key that is no text, an unusual tag.
    """
    try:
        loader = _Loader(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        words = f"the control character U+{error.character:04X} is not allowed; remove it"
        raise YamlProblem(line, (), f"is no valid YAML: {words}") from None
    try:
        node = loader.get_single_node()
        document = YamlDocument(None)
        budget = iter(range(_NODE_LIMIT))
        if node is not None:
            document.data = _build(node, (), document, loader.construct_object, budget)
        return document
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if mark is not None and mark.index >= len(text.rstrip()) and error.context_mark is not None:
            mark = error.context_mark  # the end of the text is not where the quote or bracket was opened
        line = 1 if mark is None else min(mark.line + 1, max(1, len(text.splitlines())))
        words = _yaml_words(error.problem or error.context or "can't be read")
        raise YamlProblem(line, (), f"is no valid YAML: {words}") from None
    except RecursionError:
        raise YamlProblem(1, (), "is nested too deeply; a config has a handful of levels") from None
    finally:
        loader.dispose()


def _yaml_words(words: str) -> str:
    return next((better for beginning, better in _WORDS.items() if words.startswith(beginning)), words)


def _build(
    node: yaml.Node, path: Path, document: YamlDocument, scalar: Callable[[yaml.Node], Any], budget: Any
) -> Any:
    line = node.start_mark.line + 1
    if next(budget, None) is None:
        raise YamlProblem(line, path, f"has more than {_NODE_LIMIT} values; a config has far fewer")
    document.lines.setdefault(path, line)
    if not isinstance(node, yaml.ScalarNode) and node.tag not in _COLLECTIONS:
        raise YamlProblem(line, path, _BAD_TAG)
    if isinstance(node, yaml.SequenceNode):
        return [_build(item, (*path, index), document, scalar, budget) for index, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key_line = key_node.start_mark.line + 1
            if key_node.tag != "tag:yaml.org,2002:str":
                raise YamlProblem(key_line, path, "has a key that is no text; keys are plain words")
            key = key_node.value
            if key in data:
                raise YamlProblem(key_line, (*path, key), "stands twice; each key may stand once")
            document.lines[*path, key] = key_line
            data[key] = _build(value_node, (*path, key), document, scalar, budget)
        return data
    if node.tag not in _SCALARS:
        raise YamlProblem(line, path, _BAD_TAG)
    try:
        return scalar(node)
    except (ValueError, yaml.YAMLError):
        raise YamlProblem(line, path, "is no valid value; write it in quotes if it is a text") from None
