"""The `[env]` section of WebShop, and the union of all environments."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sero_core.sections import AlfworldEnv, EvaluationSplit, Part


class GeneratedCatalogue(Part):
    """Products of our own generator; the same seed gives the same shop on every machine."""

    seed: int = Field(default=1, ge=0, description="Seed of the generator")
    num_products: int = Field(default=1000, ge=20, le=100_000, description="Products in the shop")


class WebShopEnv(Part):
    """WebShop: a shop made by `sero data webshop prepare` under `data_root`, or a generated one."""

    evaluation_splits: ClassVar[tuple[EvaluationSplit, ...]] = ("test",)
    other_splits: ClassVar[tuple[EvaluationSplit, ...]] = ("eval",)

    name: Literal["webshop"] = "webshop"
    data_root: str = Field(default="", description="Folder of a prepared shop; empty = generated")
    catalogue: GeneratedCatalogue = GeneratedCatalogue()
    goals: Literal["synthetic", "human"] = Field(
        default="synthetic", description="Goals from every option of a product, or people's"
    )
    split: Literal["original", "product"] = Field(
        default="original",
        description="original: by position, as in the papers; product: no product in two splits",
    )
    is_solvable_only: bool = Field(
        default=False, description="Train only on goals that some purchase can satisfy"
    )
    reward: Literal["original", "fixed"] = Field(
        default="original",
        description="original: as in the papers, some goals cannot reach 1; fixed: options of "
        "synthetic goals are compared by value",
    )
    observation: Literal["text", "text_rich"] = Field(
        default="text", description="text: parts joined by [SEP]; text_rich: a line each, marked"
    )
    show_attributes: bool = Field(default=False, description="Attributes page on every product")
    has_back_doors: bool = Field(
        default=False, description="The original's hidden searches <q> query and <c> category"
    )
    num_workers: int = Field(
        default=0,
        ge=0,
        le=256,
        description="Processes that step environments; 0 = the trainer's own. Same records",
    )
    worker_deadline_s: float = Field(
        default=60.0,
        ge=0.1,
        le=3600,
        description="Seconds for one reset or step in a worker; then it is killed and replaced",
    )


EnvConfig = Annotated[AlfworldEnv | WebShopEnv, Field(discriminator="name")]
"""The union of all environments, told apart by `name`."""
