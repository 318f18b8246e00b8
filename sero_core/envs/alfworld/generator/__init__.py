"""Procedural ALFWorld games in the official layout: real rooms, new object placements.

`build_game` makes one game, `generate` a folder of them. The same seed gives the same bytes on any
machine. No import of alfworld or textworld: the domain, the grammar and the floor plans are package
data.
"""

from __future__ import annotations

from sero_core.envs.alfworld.generator.build import GeneratedGame, build_game
from sero_core.envs.alfworld.generator.compose import DIFFICULTIES, Difficulty
from sero_core.envs.alfworld.generator.rooms import SPLITS, TASK_TYPES
from sero_core.envs.alfworld.generator.write import GenerationReport, generate

__all__ = [
    "DIFFICULTIES",
    "SPLITS",
    "TASK_TYPES",
    "Difficulty",
    "GeneratedGame",
    "GenerationReport",
    "build_game",
    "generate",
]
