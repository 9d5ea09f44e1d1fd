import math
from collections import Counter

import pytest
import torch

from regard.config import Search, length_penalty
from regard.data.batch import EOS
from regard.engine.native import NativeEngine
from regard.errors import ModelError
from regard.search.filters import Decoder, Request
from regard.search.sample import greedy_search, narrow, sample_search

pytestmark = pytest.mark.usefixtures("unchecked")

CPU = torch.device("cpu")
SMALL = {
    "rnn": {"kind": "rnn", "width": 8, "embedding": 8, "dropout": 0.0},
    "transformer": {"kind": "transformer", "width": 8, "heads": 2, "feed_forward": 12, "decoder_layers": 2},
}
SOURCES = [[4, 5, 6, 2], [2], [6, 6, 2], [5, 2], [4, 2]]

# p(next | last) of a little language over the ids 3 … 6; rows are the last token (1 at the beginning)
TABLE = torch.tensor(
    [
        [1, 0, 0, 0, 0, 0, 0],
        [9, 9, 1, 2, 3, 4, 5],  # the large shares of PAD and BOS are never drawn
        [0, 0, 1, 0, 0, 0, 0],
        [0, 0, 4, 1, 1, 1, 1],
        [0, 0, 1, 5, 1, 1, 1],
        [0, 0, 1, 1, 5, 1, 1],
        [0, 0, 3, 1, 1, 1, 5],
    ],
    dtype=torch.float32,
)


def table_decoder() -> Decoder:
    """A language that knows only the last word; its state is the number of each row."""

    def step(tokens, state):
        assert len(tokens) == len(state)
        return TABLE[tokens[:, -1]].log2(), state

    return Decoder(step, lambda state, rows, sentences: state[rows], CPU)


def draw(number: int, limit: int, **options) -> list[tuple[int, ...]]:
    search = Search(method="sample", **options)
    request = Request([limit] * number, seeds=range(number))
    found = sample_search(table_decoder(), torch.arange(number), request, search)
    return [outputs[0].ids for outputs in found]


def assert_frequencies(drawn, shares: dict) -> None:
    """Every frequency within five standard deviations of its share."""
    counts, total = Counter(drawn), sum(shares.values())
    assert set(counts) <= set(shares)
    for value, share in shares.items():
        p = share / total
        assert abs(counts[value] - len(drawn) * p) <= 5 * math.sqrt(len(drawn) * p * (1 - p)) + 1e-9, value


def test_words_come_as_often_as_the_model_says():
    assert_frequencies(draw(3000, 1), {(): 1, (3,): 2, (4,): 3, (5,): 4, (6,): 5})


def test_later_words_follow_the_model_too():
    second = [ids[1:] for ids in draw(4000, 2) if ids[:1] == (6,)]
    assert_frequencies(second, {(): 3, (3,): 1, (4,): 1, (5,): 1, (6,): 5})


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_temperature_sharpens_and_flattens(temperature):
    shares = {(): 1, (3,): 2, (4,): 3, (5,): 4, (6,): 5}
    wanted = {ids: share ** (1 / temperature) for ids, share in shares.items()}
    assert_frequencies(draw(3000, 1, temperature=temperature), wanted)


def test_top_k_leaves_the_k_best():
    assert_frequencies(draw(2000, 1, top_k=2), {(5,): 4, (6,): 5})
    assert set(draw(50, 1, top_k=1)) == {(6,)}
    assert set(draw(500, 1, top_k=99)) == {(), (3,), (4,), (5,), (6,)}


def test_top_p_leaves_the_smallest_set_of_that_probability():
    """Shares 5, 4, 3, 2, 1 of 15: 0.3 is within the first, 0.61 needs three."""
    assert set(draw(200, 1, top_p=0.3)) == {(6,)}
    assert_frequencies(draw(2000, 1, top_p=0.59), {(5,): 4, (6,): 5})
    assert_frequencies(draw(2000, 1, top_p=0.61), {(4,): 3, (5,): 4, (6,): 5})


def test_narrow_works_row_by_row_and_keeps_what_is_in():
    given = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]).log()
    found = narrow(given, Search(top_p=0.6))
    assert found.isfinite().tolist() == [[True, True, False], [False, False, True]]
    torch.testing.assert_close(found[0, :2], given[0, :2])
    assert narrow(given, Search(top_k=1)).isfinite().tolist() == [[True, False, False], [False, False, True]]


@pytest.mark.parametrize("kind", SMALL)
def test_a_sample_depends_on_its_seed_and_not_on_its_batch(tiny_model, kind):
    engine = NativeEngine([tiny_model(SMALL[kind], 0, 7, 9)])
    options = Search(method="sample", nbest=3, maximum_length=6, seed=5)
    seeds = [7, 8, 9, 7, 2**40]
    together = engine.search(SOURCES, options, seeds=seeds)
    for source, seed, outputs in zip(SOURCES, seeds, together, strict=True):
        assert len(outputs) == 3
        alone = engine.search([source], options, seeds=[seed])[0]
        assert [output.ids for output in alone] == [output.ids for output in outputs]
    again = engine.search(SOURCES, options, seeds=seeds)
    assert again == together
    for other in (
        engine.search(SOURCES, options, seeds=[s + 1 for s in seeds]),
        engine.search(SOURCES, options.model_copy(update={"seed": 6}), seeds=seeds),
    ):
        assert [output.ids for outputs in other for output in outputs] != [
            output.ids for outputs in together for output in outputs
        ]


@pytest.mark.parametrize("kind", SMALL)
def test_the_score_of_a_sample_is_the_models_own(tiny_model, kind):
    """Neither temperature nor top-k changes what an output is worth."""
    engine = NativeEngine([tiny_model(SMALL[kind], 0, 7, 9)])
    options = Search(method="sample", nbest=4, maximum_length=6, temperature=1.5, top_k=4, top_p=0.9, alpha=0.6)
    for source, outputs in zip(SOURCES, engine.search(SOURCES, options), strict=True):
        assert [output.score for output in outputs] == sorted((output.score for output in outputs), reverse=True)
        assert len({output.ids for output in outputs}) > 1
        for output in outputs:
            wanted = engine.score([source], [[*output.ids, EOS]])[0].sum()
            assert abs(output.log_probability - wanted) <= 1e-4
            assert output.score == pytest.approx(output.log_probability / length_penalty(len(output.ids), options))
            assert output.finished == (len(output.ids) < 6)


def test_every_draw_starts_anew():
    """A decoder may write into the state it is given."""

    def step(tokens, state):
        logits = TABLE[1].log2().repeat(len(tokens), 1)
        logits[state[:, 0] == 0, EOS] = -math.inf  # never empty, for one who counts right
        state += 1
        return logits, state

    decoder = Decoder(step, lambda state, rows, sentences: state[rows], CPU)
    options = Search(method="sample", nbest=20)
    found = sample_search(decoder, torch.zeros(3, 1, dtype=torch.long), Request([2] * 3), options)
    assert min(len(output.ids) for outputs in found for output in outputs) == 1


def test_greedy_takes_the_most_probable_word():
    found = greedy_search(table_decoder(), torch.arange(2), Request([4, 2]), Search(method="greedy"))
    assert [outputs[0].ids for outputs in found] == [(6, 6, 6, 6), (6, 6)]
    assert [outputs[0].finished for outputs in found] == [False, False]
    # 9+9+15 shares at the beginning, then 5 of 11 and finally the end, 3 of 11
    assert found[1][0].log_probability == pytest.approx(math.log(5 / 33 * 5 / 11 * 3 / 11))
    ended = greedy_search(table_decoder(), torch.arange(1), Request([4], [[3]]), Search(method="greedy"))[0][0]
    assert ended.ids == (3,)
    assert ended.finished


def test_greedy_honours_the_filters():
    options = Search(method="greedy", minimum_length=3, no_repeat=2)
    found = greedy_search(table_decoder(), torch.arange(2), Request([6, 6], [[], [3]]), options)
    assert found[0][0].ids == (6, 6, 3)  # never "6 6 6"; EOS (3 shares) first comes when 3 words are there
    assert found[1][0].ids[0] == 3
    assert len(found[1][0].ids) >= 3


def test_a_damaged_model_is_an_error():
    broken = Decoder(lambda tokens, state: (torch.full((len(tokens), 7), math.nan), state), lambda s, r, _: s[r], CPU)
    with pytest.raises(ModelError, match="not numbers"):
        greedy_search(broken, torch.arange(2), Request([4, 4]), Search(method="greedy"))
