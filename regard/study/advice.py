"""When which layer is the cheapest, in sentences, found where the measured costs of two layers cross."""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

from regard.study.fit import crossings, laws

NAMES = {
    "attention": "self-attention",
    "unfused": "unfused self-attention",
    "restricted": "restricted self-attention",
    "recurrence": "a recurrence",
    "convolution": "a convolution",
    "dilated": "a dilated convolution",
}
RIVALS = ("recurrence", "convolution", "restricted")
MODES = {"forward": "forward", "gradient": "with gradient"}
NEAR = 1.1  # costs that differ by less than this factor are told as equal

Costs = dict[int, float]  # by the number that changes


def make_advice(result: Mapping[str, Any]) -> list[str]:
    """All sentences, those about time first."""
    settings, sweeps = result["settings"], result["sweeps"]
    width, length = f"d = {settings['width']:,}", f"n = {settings['length']:,}"
    told = [f"{_sentence_case(MODES[mode])}, {width}: {tell_cheapest(sweeps['length'], mode)}" for mode in MODES]
    for rival in RIVALS:
        by_length = tell_crossing(sweeps["length"], "gradient", "attention", rival)
        by_width = tell_crossing(sweeps["width"], "gradient", "attention", rival)
        told.append(f"With gradient, {width}: {by_length}. At {length}: {by_width}.")
    told += tell_view(result)
    told.append(f"With gradient, {width}: {tell_memory(sweeps['length'])}")
    alone = tell_crossing(sweeps["operator"], "gradient", "attention alone", "restricted alone")
    told.append(f"Attention alone, with gradient, r = {settings['neighbourhood']}: {alone}.")
    return told


def read_costs(sweep: Mapping[str, Any], layer: str, mode: str, what: str = "seconds") -> Costs:
    """What a layer costs, by the number that changes in a sweep."""
    return {point["at"]: point[what] for point in sweep["layers"][layer][mode]["points"]}


def tell_cheapest(sweep: Mapping[str, Any], mode: str) -> str:
    """Which layer takes the least time, from the shortest to the longest sequence."""
    costs = {name: read_costs(sweep, name, mode) for name in ("attention", *RIVALS)}
    return f"the least time is that of {_ranges(costs)}."


def _ranges(costs: Mapping[str, Costs]) -> str:
    """`a up to about n = 300, then b`."""
    sizes = sorted(set.intersection(*(set(cost) for cost in costs.values())))
    best = [min(costs, key=lambda name: costs[name][size]) for size in sizes]
    groups = [(name, len(list(group))) for name, group in groupby(best)]
    ends, place = [], 0
    for (name, number), (after, _) in pairwise(groups):
        place += number
        between = {size: costs[name][size] for size in sizes[place - 1 : place + 1]}
        (found, *_) = crossings(between, costs[after]) or [sizes[place]]
        ends.append(f"{NAMES[name]} up to about n = {rounded(found)}")
    last = NAMES[groups[-1][0]]
    return ", then ".join([*ends, last]) if ends else f"{last} at every length from {_span(sizes)}"


def tell_crossing(sweep: Mapping[str, Any], mode: str, one: str, other: str) -> str:
    """From which number on one layer is dearer than another."""
    first, second = (read_costs(sweep, name, mode) for name in (one, other))
    sizes = sorted(set(first) & set(second))
    subject, rival = (NAMES[name.removesuffix(" alone")] for name in (one, other))
    ratios = [first[size] / second[size] for size in sizes]
    if all(1 / NEAR < ratio < NEAR for ratio in ratios):
        return f"{subject} and {rival} cost about the same at {_letters(sweep, sizes)}"
    found = crossings(first, second)
    before, after = ("cheaper", "dearer") if ratios[0] < 1 else ("dearer", "cheaper")
    if not found:
        return f"{subject} is {before} than {rival} at {_letters(sweep, sizes)}, taking {_times(ratios)}"
    if len(found) % 2 == 0:
        return f"{subject} and {rival} take turns at {_letters(sweep, sizes)}, taking {_times(ratios)}"
    where = rounded(found[0]) if len(found) == 1 else f"{rounded(found[0])} to {rounded(found[-1])}"
    return f"{subject} is {before} than {rival} up to about {sweep['by']} = {where} and {after} beyond"


def _times(ratios: Sequence[float]) -> str:
    return f"{min(ratios):.2g} to {max(ratios):.2g} times its time"


def _letters(sweep: Mapping[str, Any], sizes: Sequence[int]) -> str:
    return f"{sweep['by']} = {_span(sizes)}"


def _span(sizes: Sequence[int]) -> str:
    return f"{sizes[0]:,} to {sizes[-1]:,}"


def tell_view(result: Mapping[str, Any]) -> list[str]:
    """The cheapest stack in which every position sees all it may, at every length."""
    settings, sweep = result["settings"], result["sweeps"]["length"]
    values = {"k": settings["kernel"], "r": settings["neighbourhood"]}
    costs: dict[str, Costs] = {}
    for name, path in result["paths"].items():
        one = read_costs(sweep, name, "gradient")
        layers = {n: 1 if name == "recurrence" else needed_layers(path, n, values) for n in one}
        costs[name] = {n: seconds * layers[n] for n, seconds in one.items()}
    return [
        "With as many layers as it takes for every position to see all it may (one for self-attention and a "
        f"recurrence, else by the measured path lengths), with gradient: the least time is that of {_ranges(costs)}."
    ]


def needed_layers(path: Mapping[str, Any], length: int, values: Mapping[str, int]) -> int:
    """Layers that join all positions, by the law found at small lengths; one at least."""
    law = laws(path["letter"])[path["law"]["name"]]
    return max(1, math.ceil(path["law"]["constant"] * law(length, values.get(path["letter"], 0))))


def tell_memory(sweep: Mapping[str, Any]) -> str:
    """What the written-out weights of attention cost."""
    fused, unfused = (read_costs(sweep, name, "gradient", "bytes") for name in ("attention", "unfused"))
    both = set(fused) & set(unfused)
    if not both:
        return "self-attention that writes out its weights did not fit into the memory at any of these lengths."
    n = max(both)
    return (
        f"self-attention that writes out its weights, as when they are recorded, holds {unfused[n] / 1e6:,.0f} MB at "
        f"n = {n:,}, {unfused[n] / fused[n]:.2g} times the fused kernel's."
    )


def rounded(value: float) -> str:
    """Two digits: more would not be true on another day."""
    return f"{float(f'{value:.2g}'):,.0f}"


def _sentence_case(text: str) -> str:
    return text[:1].upper() + text[1:]
