"""Beam search against the enumeration of everything, on real little models with random weights.

With the ids PAD, BOS, EOS, UNK and one word, two tokens can be produced, so there are 2^(L+1) − 1 outputs of at
most L tokens. A beam is of full width

    stop = "bound"   when all 3 · 2^(L−1) candidates of a step fit: nothing is ever dropped
    stop = "count"   when it also holds all 2^(L+1) − 1 outputs: with fewer it may stop, as it should, before
                     longer and better ones are finished
"""

import itertools
import math

import pytest
import torch

from regard.config import Search, length_penalty
from regard.data.batch import EOS, make_batch
from regard.engine.native import NativeEngine
from regard.errors import ModelError
from regard.search.beam import beam_search, living
from regard.search.filters import Decoder, Request

RNN = {"kind": "rnn", "width": 6, "embedding": 6, "decoder_layers": 2, "dropout": 0.0}
TRANSFORMER = {
    "kind": "transformer",
    "width": 8,
    "heads": 2,
    "feed_forward": 8,
    "encoder_layers": 1,
    "decoder_layers": 2,
}
SECTIONS = {
    "rnn none lstm": RNN | {"attention": "none", "cell": "lstm"},
    "rnn additive gru": RNN | {"attention": "additive"},
    "rnn dot vanilla": RNN | {"attention": "dot", "cell": "vanilla"},
    "rnn general lstm": RNN | {"attention": "general", "cell": "lstm"},
    "rnn concat gru unfed": RNN | {"attention": "concat", "input_feeding": False},
    "transformer pre": TRANSFORMER | {"norm": "pre"},
    "transformer post": TRANSFORMER | {"norm": "post", "tie": "none"},
    "transformer learned": TRANSFORMER | {"positions": "learned", "max_length": 8, "activation": "swiglu"},
    "transformer none": TRANSFORMER | {"positions": "none", "activation": "gelu"},
}
INSTANCES = 24  # of each section: 216 models
SOURCES = [[4, 5, 2], [2]]
SETTINGS = list(itertools.product(["bound", "count"], ["length", "gnmt"], [0.0, 0.6, 1.0, 2.0]))

pytestmark = pytest.mark.usefixtures("unchecked")


def all_outputs(
    engine: NativeEngine, source: list[int], limit: int, vocabulary: int = 5
) -> dict[tuple[int, ...], float]:
    """Every output of at most `limit` tokens with its log-probability by teacher forcing."""
    words = range(3, vocabulary)
    outputs = [ids for length in range(limit + 1) for ids in itertools.product(words, repeat=length)]
    prices = engine.score([source] * len(outputs), [[*ids, EOS] for ids in outputs])
    return {ids: float(price.sum()) for ids, price in zip(outputs, prices, strict=True)}


def ranked(outputs: dict[tuple[int, ...], float], options: Search) -> list[tuple[float, tuple[int, ...]]]:
    return sorted(((price / length_penalty(len(ids), options), ids) for ids, price in outputs.items()), reverse=True)


def check_best(found, outputs, options: Search) -> None:
    """The n best of a search are the n best of all outputs (those that score alike may change places)."""
    best = ranked(outputs, options)
    assert len(found) == min(options.nbest, len(best))
    for output, (score, _) in zip(found, best, strict=False):
        assert abs(output.score - score) <= 1e-4
        assert abs(output.log_probability - outputs[output.ids]) <= 1e-4
        assert output.score == pytest.approx(output.log_probability / length_penalty(len(output.ids), options))
    if len(best) > 1 and best[0][0] - best[1][0] > 1e-4:
        assert found[0].ids == best[0][1]
    assert len({output.ids for output in found}) == len(found)
    assert [output.score for output in found] == sorted((output.score for output in found), reverse=True)


@pytest.mark.parametrize("section", SECTIONS.values(), ids=SECTIONS.keys())
def test_full_width_finds_the_best_of_all_outputs(tiny_model, section):
    missed, lengths = 0, set()
    for instance in range(INSTANCES):
        engine = NativeEngine([tiny_model(section, instance, 7, 5, scale=1.5)])
        limit = (3, 4, 5, 3, 4, 6)[instance % 6]
        outputs = [all_outputs(engine, source, limit) for source in SOURCES]
        for number in range(2):
            stop, penalty, alpha = SETTINGS[(7 * instance + 3 * number) % len(SETTINGS)]
            width = 3 * 2 ** (limit - 1) if stop == "bound" else 2 ** (limit + 1) - 1
            options = Search(beam=width, nbest=4, stop=stop, penalty=penalty, alpha=alpha, maximum_length=limit)
            for found, every in zip(engine.search(SOURCES, options), outputs, strict=True):
                check_best(found, every, options)
                lengths.add(len(found[0].ids))
            if number == 0:
                narrow = engine.search(SOURCES, options.model_copy(update={"beam": 1, "nbest": 1}))
                missed += any(
                    one[0].score < ranked(every, options)[0][0] - 1e-3
                    for one, every in zip(narrow, outputs, strict=True)
                )
    assert missed >= 2  # the instances are no pushovers: a beam of one gets some of them wrong
    assert len(lengths) >= 4


@pytest.mark.parametrize("section", SECTIONS.values(), ids=SECTIONS.keys())
def test_beam_of_one_is_greedy_without_length_penalty(tiny_model, section):
    sources = [[4, 5, 6, 2], [2], [6, 2], [5, 5, 2]]
    lengths = set()
    for seed in range(4):
        engine = NativeEngine([tiny_model(section, seed, 7, 5, scale=1.5)])
        greedy = engine.search(sources, Search(method="greedy", alpha=0, maximum_length=7))
        for stop in ("bound", "count"):
            narrow = engine.search(sources, Search(beam=1, alpha=0, stop=stop, maximum_length=7))
            for (one,), (other,) in zip(narrow, greedy, strict=True):
                assert one.ids == other.ids
                assert one.finished == other.finished
                assert abs(one.score - other.score) <= 1e-4
                lengths.add(len(one.ids))
    assert len(lengths) >= 2


@pytest.mark.parametrize("section", SECTIONS.values(), ids=SECTIONS.keys())
def test_narrow_beams_report_the_teacher_forced_score(tiny_model, section):
    engine = NativeEngine([tiny_model(section, 3, 7, 9)])
    sources = [[4, 5, 6, 2], [2], [6, 2]]
    for stop in ("bound", "count"):
        options = Search(beam=4, nbest=4, alpha=0.7, stop=stop, maximum_length=7)
        for source, outputs in zip(sources, engine.search(sources, options), strict=True):
            assert len({output.ids for output in outputs}) == len(outputs) == 4
            assert [output.score for output in outputs] == sorted((o.score for o in outputs), reverse=True)
            for output in outputs:
                wanted = engine.score([source], [[*output.ids, EOS]])[0].sum()
                assert abs(output.log_probability - wanted) <= 1e-4
                assert abs(output.score - wanted / length_penalty(len(output.ids), options)) <= 1e-4
                assert output.finished == (len(output.ids) < 7)


def has_repeat(ids: tuple[int, ...], size: int) -> bool:
    grams = [ids[i : i + size] for i in range(len(ids) - size + 1)]
    return len(set(grams)) < len(grams)


FILTERS = {
    "minimum": (Search(beam=96, nbest=6, minimum_length=3, maximum_length=5), lambda ids: len(ids) >= 3),
    "exactly": (Search(beam=96, nbest=6, minimum_length=4, maximum_length=4), lambda ids: len(ids) == 4),
    "minimum above maximum": (  # where the maximum is a model's own
        Search(beam=96, nbest=6, maximum_length=4).model_copy(update={"minimum_length": 9}),
        lambda ids: len(ids) == 4,
    ),
    "maximum": (Search(beam=96, nbest=6, maximum_length=2), lambda ids: len(ids) <= 2),
    "no bigram twice": (Search(beam=96, nbest=6, no_repeat=2, maximum_length=6), lambda ids: not has_repeat(ids, 2)),
    "no trigram twice": (Search(beam=96, nbest=6, no_repeat=3, maximum_length=6), lambda ids: not has_repeat(ids, 3)),
    "no word twice": (Search(beam=96, nbest=5, no_repeat=1, maximum_length=6), lambda ids: not has_repeat(ids, 1)),
    "no word twice, three at least": (  # with two words that cannot be: what is stuck ends
        Search(beam=96, nbest=2, no_repeat=1, minimum_length=3, maximum_length=6),
        lambda ids: len(ids) == 2 and not has_repeat(ids, 1),
    ),
}


@pytest.mark.parametrize("kind", ["rnn additive gru", "transformer pre"])
@pytest.mark.parametrize(("options", "fits"), FILTERS.values(), ids=FILTERS.keys())
def test_best_of_what_the_filters_allow(tiny_model, kind, options, fits):
    for seed in range(4):
        engine = NativeEngine([tiny_model(SECTIONS[kind], seed, 7, 5, scale=1.5)])
        for source, found in zip(SOURCES, engine.search(SOURCES, options), strict=True):
            every = all_outputs(engine, source, options.maximum_length)
            check_best(found, {ids: price for ids, price in every.items() if fits(ids)}, options)


@pytest.mark.parametrize("kind", ["rnn dot vanilla", "rnn none lstm", "transformer post"])
def test_best_of_what_begins_with_the_prefix(tiny_model, kind):
    """A prefix of its own for each sentence, even one that the filters would forbid, longer than the limit, or none."""
    prefixes = [(4, 4, 4), (), (3, 4), (4, 3, 4, 3, 4, 3, 4)]
    sources = [[4, 5, 2], [2], [4, 5, 2], [6, 2]]
    for seed in range(4):
        engine = NativeEngine([tiny_model(SECTIONS[kind], seed, 7, 5, scale=1.5)])
        options = Search(beam=96, nbest=3, maximum_length=5)
        for source, prefix, found in zip(sources, prefixes, engine.search(sources, options, prefixes), strict=True):
            every = all_outputs(engine, source, 5)
            check_best(found, {ids: p for ids, p in every.items() if ids[: len(prefix)] == prefix[:5]}, options)
        forbidden = Search(beam=8, nbest=1, maximum_length=5, no_repeat=1)
        assert engine.search(sources[:1], forbidden, prefixes[:1])[0][0].ids[:3] == (4, 4, 4)


def decoder_of(engine: NativeEngine) -> Decoder:
    return Decoder(engine._step, engine._select, engine.device)


@pytest.mark.parametrize("stop", ["bound", "count"])
@pytest.mark.parametrize("kind", ["rnn general lstm", "transformer pre"])
def test_sentences_of_different_limits_in_one_batch(tiny_model, kind, stop):
    """They leave the batch at different steps, and each is found as if alone."""
    sources, limits = [[4, 5, 2], [2], [6, 2], [5, 2], [4, 5, 2]], [6, 0, 3, 1, 2]
    for seed in range(4):
        engine = NativeEngine([tiny_model(SECTIONS[kind], seed, 7, 5, scale=1.5)])
        for width in (127, 2):
            options = Search(beam=width, nbest=min(3, width), stop=stop)
            with torch.inference_mode():
                state = tuple(engine._start(model, make_batch(sources)) for model in engine.models)
            together = beam_search(decoder_of(engine), state, Request(limits), options)
            for source, limit, found in zip(sources, limits, together, strict=True):
                alone = (
                    engine.search([source], options.model_copy(update={"maximum_length": limit}))[0] if limit else None
                )
                assert [output.ids for output in found] == ([output.ids for output in alone] if alone else [()])
                if width == 127:
                    check_best(found, all_outputs(engine, source, limit), options)


def test_ensembles_search_the_mean_of_their_probabilities(tiny_model):
    for seed in range(4):
        models = [tiny_model(SECTIONS[kind], seed, 7, 5, scale=1.5) for kind in ("rnn additive gru", "transformer pre")]
        engine = NativeEngine(models)
        options = Search(beam=96, nbest=4, maximum_length=5)
        for source, found in zip(SOURCES, engine.search(SOURCES, options), strict=True):
            check_best(found, all_outputs(engine, source, 5), options)


# The parts


def test_those_that_end_do_not_live_on():
    ends = torch.tensor([[True, False, True, False], [False, False, True, False]])
    assert living(ends, 2).tolist() == [[1, 3], [0, 1]]


def scripted(prices: dict[tuple[int, ...], dict[int, float]], steps: list[int]) -> Decoder:
    """A decoder whose probabilities are written down: history → token → probability; `steps` counts the rows."""

    def step(tokens, state):
        history = torch.cat([state, tokens], 1)
        logits = torch.full((len(history), 7), -math.inf)
        for row, ids in enumerate(history.tolist()):
            known = prices.get(tuple(ids[1:]), {EOS: 1.0})
            for token, price in known.items():
                logits[row, token] = math.log2(price)
        steps.append(len(history))
        return logits, history

    return Decoder(step, lambda state, rows, sentences: state[rows], torch.device("cpu"))


def test_bound_waits_for_a_longer_output_and_count_does_not():
    """With α = 1 a long output may still win when a short one is finished."""
    prices = {(): {EOS: 0.6, 4: 0.4}, (4,): {4: 0.99, EOS: 0.01}, (4, 4): {4: 0.99, EOS: 0.01}, (4, 4, 4): {EOS: 1.0}}
    start = torch.empty(1, 0, dtype=torch.long)
    for stop, ids in (("bound", (4, 4, 4)), ("count", ())):
        options = Search(beam=1, stop=stop, alpha=1)
        assert beam_search(scripted(prices, []), start, Request([5]), options)[0][0].ids == ids


def test_bound_stops_as_soon_as_nothing_can_win():
    prices = {(): {EOS: 0.9, 4: 0.1}} | {(4,) * n: {EOS: 0.5, 4: 0.5} for n in range(1, 9)}
    start = torch.empty(1, 0, dtype=torch.long)
    steps: list[int] = []
    best = beam_search(scripted(prices, steps), start, Request([8]), Search(beam=2, alpha=0))[0][0]
    assert best.ids == ()
    assert len(steps) == 1
    steps.clear()
    both = beam_search(scripted(prices, steps), start, Request([8]), Search(beam=2, nbest=2, alpha=0))[0]
    assert [output.ids for output in both] == [(), (4,)]
    assert len(steps) == 2


def test_sentences_that_are_done_leave_the_batch():
    prices = {(): {EOS: 0.9, 4: 0.1}, (4,): {4: 0.6, 5: 0.4}, (4, 4): {EOS: 1.0}, (4, 5): {EOS: 1.0}}
    steps: list[int] = []
    start = torch.empty(3, 0, dtype=torch.long)
    found = beam_search(scripted(prices, steps), start, Request([5] * 3, [[], [4], []]), Search(beam=2, alpha=0))
    assert [outputs[0].ids for outputs in found] == [(), (4, 4), ()]
    assert steps == [3, 2, 2]  # one row for each beginning: there is but one before the first word


def test_a_damaged_model_is_an_error_and_no_endless_search():
    broken = Decoder(
        lambda tokens, state: (torch.full((len(tokens), 7), math.nan), state), lambda s, r, _: s[r], torch.device("cpu")
    )
    with pytest.raises(ModelError, match="not numbers"):
        beam_search(broken, torch.arange(2), Request([4, 4]), Search())
