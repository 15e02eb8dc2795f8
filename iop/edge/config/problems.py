"""What is wrong with a configuration: where, what kind, and what would be right.

A message never holds a value of the document or text of a file: what is wrong may be a secret in the wrong place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from iop.edge.config.tree import NOWHERE, Mark, Path, locate, render


@dataclass(frozen=True, slots=True)
class Problem:
    """One error or warning.

    ``path`` names the value (``""`` is the whole file), ``line`` counts from 1, ``code`` is one of the error codes of
    ``docs/contracts/config.md``.
    """

    path: str
    line: int
    file: str
    code: str
    message: str

    def document(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        # a file that cannot be read has no lines, and its message names it
        place = f"{self.file}:{self.line}: " if self.file and self.code != "file" else ""
        subject = f"{self.path}: " if self.path else ""
        return f"{place}{subject}{self.message} [{self.code}]"


class ConfigError(Exception):
    """A configuration that does not load, with everything that is wrong with it."""

    def __init__(self, problems: Iterable[Problem], warnings: Iterable[Problem] = ()) -> None:
        self.problems = tuple(problems)
        self.warnings = tuple(warnings)
        super().__init__("\n".join(map(str, self.problems)))


class Report:
    """Collects problems while a document goes through the stages.

    ``tree`` is the merged document, which knows where each value stood; paths of later stages lead into it.
    """

    def __init__(self, files: Iterable[str] = ()) -> None:
        self.files = list(files)
        self.tree: Any = None
        self.errors: list[Problem] = []
        self.warnings: list[Problem] = []

    def error(self, path: Path, code: str, message: str, mark: Mark | None = None) -> None:
        self.errors.append(self._problem(path, code, message, mark))

    def warning(self, path: Path, code: str, message: str) -> None:
        self.warnings.append(self._problem(path, code, message, None))

    def _problem(self, path: Path, code: str, message: str, mark: Mark | None) -> Problem:
        start = Mark(self.files[0], 1) if self.files else NOWHERE
        place = mark or locate(self.tree, path, start)
        return Problem(render(path), place.line, place.file, code, message)

    def sorted(self, problems: Iterable[Problem]) -> tuple[Problem, ...]:
        """In the order of the files and their lines."""
        order = {file: index for index, file in reversed(list(enumerate(self.files)))}
        return tuple(sorted(problems, key=lambda each: (order.get(each.file, len(order)), each.line)))

    def raise_errors(self) -> None:
        if self.errors:
            raise ConfigError(self.sorted(self.errors), self.sorted(self.warnings))
