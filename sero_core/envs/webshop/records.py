"""How products, nouns and goal sources are written on disk: one JSON value a line."""

from __future__ import annotations

import json

from sero_core.envs.webshop.goals import GoalSource
from sero_core.envs.webshop.products import Instruction, Product
from sero_core.envs.webshop.storage import json_line


def encode_product(product: Product) -> bytes:
    return json_line(
        {
            "asin": product.asin,
            "title": product.title,
            "description": product.description,
            "bullet_points": product.bullet_points,
            "pricing": product.pricing,
            "price_tag": product.price_tag,
            "options": product.options,
            "attributes": product.attributes,
            "query": product.query,
            "product_category": product.product_category,
            "category": product.category,
        }
    )


def decode_product(line: bytes) -> Product:
    fields = json.loads(line)
    return Product(
        asin=fields["asin"],
        title=fields["title"],
        description=fields["description"],
        bullet_points=tuple(fields["bullet_points"]),
        pricing=tuple(fields["pricing"]),
        price_tag=fields["price_tag"],
        options=tuple((name, tuple(values)) for name, values in fields["options"]),
        attributes=tuple(fields["attributes"]),
        query=fields["query"],
        product_category=fields["product_category"],
        category=fields["category"],
    )


def decode_nouns(line: bytes) -> tuple[str, ...]:
    return tuple(json.loads(line))


def encode_source(source: GoalSource) -> bytes:
    wish = source.instruction
    return json_line(
        [
            source.product,
            wish.text,
            wish.attributes,
            wish.options,
            source.price_upper,
            source.weight,
        ]
    )


def decode_source(line: bytes) -> GoalSource:
    product, text, attributes, options, price_upper, weight = json.loads(line)
    chosen = None if options is None else tuple(options)
    return GoalSource(product, Instruction(text, tuple(attributes), chosen), price_upper, weight)
