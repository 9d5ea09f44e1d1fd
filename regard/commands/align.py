"""`regard align`: which target token belongs to which source token, by an aligner of our own or by attention."""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.commands.options import keep_inputs, positive, set_threads
from regard.data.text import Pair, read_pairs, write_line
from regard.errors import ConfigError, DataError

if TYPE_CHECKING:
    from regard.align.aligner import AlignerOptions
    from regard.align.bitext import Bitext, Row
    from regard.align.fertility import Histogram
    from regard.align.links import Alignment, Gold

EPILOGUE = """\
examples:
  regard align pairs.tsv -o links.txt                          words as spaces part them
  regard align train.en train.de --model model -o links.txt    the tokens of a model
  regard align pairs.tsv --gold gold.txt                       precision, recall, alignment error rate
  regard align pairs.tsv --attention model --against links.txt   does the model look where the aligner links?
  regard align pairs.tsv --model model --fertilities numbers.txt --histogram fertility.png
  regard align --prepared run/data --ids ids.txt               what another aligner reads, for data.aligner

One line for each pair, with source-target token numbers from 0 (Pharaoh form). Scores go to stdout; links do
too if neither -o nor anything else is asked for.
"""
TRAINED = ("kind", "iterations", "direction", "symmetrise", "threshold", "null", "prior")
MOST = 8  # fertilities from here on share a bar


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.epilog = EPILOGUE
    parser.add_argument(
        "pairs", nargs="*", metavar="FILE", help="a file of pairs or two aligned ones (none: TSV on stdin)"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="the links, a line for each pair")
    tokens = parser.add_argument_group("tokens (default: words as spaces part them)")
    tokens.add_argument("--model", metavar="MODEL", help="those of this model or run directory")
    tokens.add_argument("--prepared", metavar="DIR", help="those of this prepared corpus; with no FILE its pairs, too")
    tokens.add_argument("--lowercase", action="store_true", help="lower-case the words")
    aligner = parser.add_argument_group("the aligner")
    aligner.add_argument("--kind", choices=["hmm", "ibm1", "ibm2"], help="default: hmm")
    aligner.add_argument("--direction", choices=["forward", "backward", "both"], help="default: both")
    aligner.add_argument("--symmetrise", metavar="KIND", help="of both directions (default: grow-diag-final-and)")
    aligner.add_argument("--iterations", metavar="N[,N]", help="of model 1, and of the kind (default: 5,5)")
    aligner.add_argument("--threshold", type=float, metavar="P", help="links this probable, not the best path")
    aligner.add_argument("--null", type=float, metavar="P", help="share of tokens with no translation (default: 0.05)")
    aligner.add_argument("--prior", type=float, metavar="A", help="of the lexicon; 0: none (default: 0.01)")
    parser.add_argument("--attention", metavar="MODEL", help="links by what this model looks at, instead")
    judged = parser.add_argument_group("what becomes of the links")
    judged.add_argument("--gold", metavar="FILE", help="alignment error rate; sure links 3-4, possible ones 3?4")
    judged.add_argument("--against", metavar="FILE", help="agreement with the links of another file")
    judged.add_argument(
        "--fertilities", metavar="FILE", help="target tokens of each source token, a line for each pair"
    )
    judged.add_argument("--histogram", metavar="FILE", help="how often each fertility occurs: .png, .svg, .pdf")
    judged.add_argument("--json", action="store_true", help="print scores as JSON")
    parser.add_argument("--ids", metavar="FILE", help="only write the tokens' ids, for another aligner: 7 5 ||| 8 2 9")
    parser.add_argument("--longest", type=positive, default=1000, metavar="N", help="tokens; longer pairs get no links")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--device", default="auto", metavar="NAME", help="for --attention: cpu, cuda …")
    parser.add_argument("--threads", type=positive, metavar="N", help="for --attention: CPU threads")


def run(arguments: argparse.Namespace) -> None:
    """Align, then write and judge."""
    from regard.align.bitext import Bitext
    from regard.recipe import locate_corpus

    options = check(arguments)
    corpus = locate_corpus(arguments.pairs)
    pairs = read_pairs(corpus or "-", "auto" if corpus else "tsv")
    rows, look = attending(arguments, pairs) if arguments.attention else (tokens(arguments, pairs), None)
    bitext = Bitext.read(rows, arguments.longest)
    if not bitext.usable.any():
        told = f"{len(bitext):,} pairs, none of them with words on both sides and at most {bitext.longest} tokens"
        raise DataError(f"{' and '.join(arguments.pairs) or arguments.prepared or 'standard input'}: {told}")
    if arguments.ids:
        write_lines(arguments.ids, ids_of(bitext))
        tell(bitext)
        return
    files = [read_gold(path, bitext) for path in (arguments.gold, arguments.against)]
    links = find_links(bitext, options, look, arguments.quiet)
    tell(bitext)
    finish(arguments, bitext, links, *files)


def check(arguments: argparse.Namespace) -> "AlignerOptions":
    """The options of the aligner; what cannot be is told before the work."""
    from regard.align.aligner import AlignerOptions
    from regard.config import validate

    given = {name: value for name in TRAINED if (value := getattr(arguments, name)) is not None}
    if arguments.attention and given:
        raise ConfigError(f"--attention trains no aligner: --{next(iter(given))} cannot be given with it")
    if arguments.symmetrise and arguments.direction in ("forward", "backward"):
        raise ConfigError(f"--symmetrise joins two directions; --direction {arguments.direction} is one")
    if arguments.null is not None and arguments.kind == "ibm1":
        raise ConfigError("--null is of model 2 and hmm; --kind ibm1 has none")
    if arguments.json and not any((arguments.gold, arguments.against, arguments.fertilities, arguments.histogram)):
        raise ConfigError("--json prints scores: there are none without --gold, --against, --fertilities, --histogram")
    named = [name for name in ("model", "prepared", "attention") if getattr(arguments, name)]
    if len(named) > 1:
        raise ConfigError(f"--{named[0]} and --{named[1]} exclude each other: each says what the tokens are")
    if named and arguments.lowercase:
        raise ConfigError(f"--lowercase is for words as spaces part them; --{named[0]} has its own text options")
    if "iterations" in given:
        given["iterations"] = read_iterations(arguments.iterations)
    others = ("output", "gold", "against", "fertilities", "histogram", "attention", *TRAINED)
    if arguments.ids and (also := [name for name in others if getattr(arguments, name) is not None]):
        raise ConfigError(f"--ids aligns nothing: --{also[0]} cannot be given with it")
    for name in ("output", "fertilities", "histogram", "ids"):
        path = getattr(arguments, name)
        if path and (Path(path).is_dir() or not Path(path).absolute().parent.is_dir()):
            raise ConfigError(f"--{name} {path}: expected a file in a folder that is there")
    written = [arguments.output, arguments.fertilities, arguments.histogram, arguments.ids]
    keep_inputs(written, [*arguments.pairs, arguments.gold, arguments.against])
    if arguments.histogram:
        from regard.view.plots import check_picture

        check_picture(arguments.histogram)
    return validate(AlignerOptions, given | {"longest": arguments.longest}, "options")


def read_iterations(text: str) -> tuple[int, int]:
    """`5` or `5,3`."""
    numbers = text.split(",")
    if len(numbers) > 2 or not all(number.isdecimal() for number in numbers):
        raise ConfigError(f"--iterations {text}: expected one number or two, as 5 or 5,3")
    return int(numbers[0]), int(numbers[-1])


def tokens(arguments: argparse.Namespace, pairs: Iterable[Pair]) -> "Iterable[Row]":
    """The pairs as ids, of a model's tokens or of words."""
    if arguments.model:
        from regard.directory import read_directory
        from regard.predict import load_task

        return load_task(*read_directory(arguments.model)).rows(pairs)
    if arguments.prepared:
        from regard.columns import corpus_rows
        from regard.prepare import open_prepared

        prepared = open_prepared(Path(arguments.prepared))
        return prepared.task.rows(pairs) if arguments.pairs else corpus_rows(prepared)
    return words(pairs, arguments.lowercase)


def words(pairs: Iterable[Pair], lowercase: bool) -> Iterator[tuple[list[int], list[int]]]:
    """Words as spaces part them, numbered as they come."""
    known: tuple[dict[str, int], dict[str, int]] = {}, {}

    def number(text: str, table: dict[str, int]) -> list[int]:
        text = text.lower() if lowercase else text
        return [table.setdefault(word, len(table)) for word in text.split(" ") if word]

    for pair in pairs:
        yield number(pair.source, known[0]), number(pair.target, known[1])


def attending(arguments: argparse.Namespace, pairs: Iterable[Pair]) -> tuple[Any, Any]:
    """The pairs as ids of a model, and the function by which it looks at them."""
    set_threads(arguments)
    from regard.predict import load

    predictor = load(arguments.attention, device=arguments.device)
    arguments.longest = min(arguments.longest, (predictor.engine.limit or arguments.longest + 1) - 1)  # and an EOS
    return predictor.task.rows(pairs), predictor.engine.cross_attention


def find_links(bitext: "Bitext", options: "AlignerOptions", look: Any, quiet: bool) -> "Alignment":
    """The links of every pair, by attention if there is a model."""
    from regard.align.aligner import align_bitext
    from regard.align.attention import attention_links

    def say(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr, flush=True)

    if look is None:
        return align_bitext(bitext, options, say)
    every, told = max(1, len(bitext) // 10), 0

    def count(done: int) -> None:
        nonlocal told
        if done // every > told:
            told = done // every
            say(f"{done:,} of {len(bitext):,} pairs")

    return attention_links(look, bitext, count)


def tell(bitext: "Bitext") -> None:
    """What got no links, and why."""
    blank = len(bitext) - int(bitext.usable.sum()) - bitext.too_long
    counts = {"blank on a side": blank, f"with more than {bitext.longest} tokens": bitext.too_long}
    notes = [f"{number:,} {what}" for what, number in counts.items() if number]
    print(f"{len(bitext):,} pairs" + (f": {', '.join(notes)}" if notes else ""), file=sys.stderr)


def finish(
    arguments: argparse.Namespace, bitext: "Bitext", links: "Alignment", gold: "list[Gold] | None", other: Any
) -> None:
    """Write what was asked for, and print scores."""
    from regard.align.agreement import alignment_error
    from regard.align.fertility import Histogram, make_fertilities
    from regard.align.links import write_links

    asked = (arguments.gold, arguments.against, arguments.fertilities, arguments.histogram)
    if arguments.output or not any(asked):
        write_lines(arguments.output, map(write_links, links))
    result: dict[str, Any] = {}
    for name, right in (("gold", gold), ("against", other)):
        if right is not None:
            score = alignment_error(links, right)
            result[name] = {"alignment_error": score.value, **score.details}
    if arguments.fertilities or arguments.histogram:
        numbers = list(make_fertilities(links, bitext))
        histogram = Histogram.of(numbers)
        result["fertility"] = {
            "mean": histogram.mean,
            "share_of_zeros": histogram.zeros,
            "counts": histogram.counts.tolist(),
        }
        if arguments.fertilities:
            write_lines(arguments.fertilities, (" ".join(map(str, each.tolist())) for each in numbers))
        if arguments.histogram:
            draw(arguments.histogram, histogram)
    if result:
        print(json.dumps(result, indent=1) if arguments.json else "\n".join(describe(result)))


def describe(result: dict[str, Any]) -> Iterator[str]:
    """The scores for people."""
    for name, score in result.items():
        if name == "fertility":
            yield f"fertility: mean {score['mean']:.3f}, {100 * score['share_of_zeros']:.1f} % zeros"
            continue
        rates = f"precision {100 * score['precision']:.2f} %, recall {100 * score['recall']:.2f} %"
        found = f"{score['links']:,} links, {score['sure']:,} {'sure ones' if name == 'gold' else 'there'}"
        if name == "gold":
            yield f"alignment error rate: {100 * score['alignment_error']:.2f} %  ({rates}; {found})"
        else:
            error = f"alignment error rate {100 * score['alignment_error']:.2f} %"
            yield f"agreement: F1 {100 * score['f1']:.2f} %  ({rates}, {error}; {found})"


def draw(path: str, histogram: "Histogram") -> None:
    """Shares of source tokens by fertility; rare large ones share the last bar."""
    from regard.view.plots import bar_plot

    counts = histogram.counts.tolist()
    head, tail = counts[:MOST], counts[MOST:]
    total = max(1, sum(counts))
    bars = [(str(number), count / total) for number, count in enumerate(head)]
    if tail:
        bars.append((f"{MOST}+", sum(tail) / total))
    title = f"fertility: mean {histogram.mean:.2f}, {100 * histogram.zeros:.1f} % zeros"
    bar_plot(path, bars, title, "target tokens of a source token", "share of source tokens")


def ids_of(bitext: "Bitext") -> Iterator[str]:
    """Pairs as other aligners read them: tokens as spaces part them, the sides parted by three bars."""
    for number in range(len(bitext)):
        source, target = (" ".join(map(str, side.row(number))) for side in (bitext.source, bitext.target))
        yield f"{source} ||| {target}"


def read_gold(path: str | None, bitext: "Bitext") -> "list[Gold] | None":
    """A file of links that must fit the pairs."""
    from regard.align.links import read_links

    return read_links(path, bitext.lengths) if path else None


def write_lines(path: str | None, lines: Iterable[str]) -> None:
    """A line for each pair, to standard output or to a file that appears whole or not at all."""
    output = Path(path) if path else None
    if output is None:
        for line in lines:
            write_line(sys.stdout.buffer, line)
        return
    plain = output.is_file() or not output.exists()  # else a pipe or a device
    part = output.with_name(f".{output.name}.{os.getpid()}.part") if plain else output
    try:
        with part.open("wb") as stream:
            for line in lines:
                write_line(stream, line)
        if plain:
            part.replace(output)
    finally:
        if plain:
            part.unlink(missing_ok=True)
