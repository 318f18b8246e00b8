"""ALFWorld's text games: a native engine, the stock engine beside it, and the data around them."""

from sero_core.envs.alfworld.env import AlfworldEnv
from sero_core.envs.alfworld.tasks import TASK_TYPES, list_tasks
from sero_core.envs.alfworld.text import task_text

__all__ = ["TASK_TYPES", "AlfworldEnv", "list_tasks", "task_text"]
