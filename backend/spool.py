"""The folder of an attempt: the spool that its process writes, and what the process prints.

`<run>/spool/job-<job>-attempt-<attempt>/` holds the segments (`sero_core.sinks.spool`),
`output.txt` (everything that the process and its libraries print, also when the interpreter itself
crashes) and `target.json`, which says where the records belong, for whoever finds the folder later.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

MAX_LINE_CHARS = 4000


@dataclass(frozen=True, slots=True)
class Target:
    """Where the records belong. `iteration`: for jobs on a checkpoint, the checkpoint's."""

    run_id: int
    job_id: int
    attempt: int
    iteration: int | None = None


@dataclass(frozen=True, slots=True)
class SpoolFolder:
    """One attempt's folder."""

    path: Path

    @property
    def output(self) -> Path:
        return self.path / "output.txt"

    @property
    def target(self) -> Target:
        """Errors: OSError, ValueError and TypeError for a folder without its `target.json`."""
        return Target(**json.loads((self.path / "target.json").read_text()))

    def create(self, target: Target) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        staging = self.path / ".target.json"
        staging.write_text(json.dumps(asdict(target)))
        staging.replace(self.path / "target.json")


def spool_folder(run_dir: Path, job_id: int, attempt: int) -> SpoolFolder:
    return SpoolFolder(run_dir / "spool" / f"job-{job_id}-attempt-{attempt}")


class LineReader:
    """Complete lines of a growing file, in order."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def peek(self, max_lines: int, *, is_final: bool = False) -> list[bytes]:
        """The next complete lines with their newlines; `accept` moves past them.

        `is_final`: nobody writes any more, so the last line may lack its newline.
        """
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            lines: list[bytes] = []
            while len(lines) < max_lines:
                line = file.readline()
                if not line or not (is_final or line.endswith(b"\n")):
                    break
                lines.append(line)
        return lines

    def accept(self, lines: list[bytes]) -> None:
        """Move past `lines`, which `peek` returned."""
        self._offset += sum(map(len, lines))

    def skip(self, num_lines: int) -> None:
        """Move past lines that an earlier reader accepted."""
        while num_lines > 0 and (lines := self.peek(min(num_lines, 1000), is_final=True)):
            self.accept(lines)
            num_lines -= len(lines)


def clean_line(line: bytes) -> str:
    """A line as it is stored: of a progress bar only the last state, and not endless."""
    text = line.decode(errors="replace").rstrip().rpartition("\r")[2]
    return text[:MAX_LINE_CHARS]
