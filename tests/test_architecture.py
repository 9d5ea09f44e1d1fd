"""The plan of the house, as tests: who may import whom, what imports no torch, what is never used."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "regard"
TESTS = ROOT / "tests"
FILES = sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in FILES}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


class Import(NamedTuple):
    """One import statement's target, and whether it runs when the module is imported."""

    target: str
    at_once: bool


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def imports(name: str) -> set[Import]:
    """What a module imports; of ours, the module itself and not a name in it."""

    def walk(node: ast.AST, at_once: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from (Import(alias.name, at_once) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{name}: imports are absolute"
                for alias in child.names:
                    inner = f"{child.module}.{alias.name}"
                    yield Import(inner if inner in MODULES else str(child.module), at_once)
            elif is_type_checking(child):
                assert isinstance(child, ast.If)
                for part in child.body:
                    yield from walk(ast.Module([part], []), False)
                for part in child.orelse:
                    yield from walk(ast.Module([part], []), at_once)
            else:
                inside = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
                yield from walk(child, at_once and not inside)

    return set(walk(TREES[name], True))


IMPORTS = {name: imports(name) for name in MODULES}


def room(name: str) -> str:
    """`regard.data.store` → data; `regard.config` → config; `regard` → regard."""
    return name.split(".")[1] if "." in name else name


def within(name: str, *places: str) -> bool:
    return any(name == place or name.startswith(place + ".") for place in places)


# Rooms


STUDY = (
    "study", "recipe", "pipeline", "predict", "evaluation", "metrics", "view", "data", "directory", "origin", "config",
    "errors", "nn",
)  # fmt: skip
STUDY_OF_LAYERS = {f"regard.study.{name}" for name in ("subject", "cost", "path", "layers")}  # they know networks
ONLY = {  # room → the only parts of regard it may import, even inside a function
    "errors": [],
    "config": ["regard.errors"],
    "data": ["regard.data", "regard.config", "regard.errors"],
    "align": ["regard.align", "regard.data", "regard.config", "regard.errors", "regard.metrics"],
    "nn": ["regard.nn"],
    "models": ["regard.models", "regard.nn", "regard.data.batch", "regard.config", "regard.errors"],
    "search": ["regard.search", "regard.nn.chance", "regard.data.batch", "regard.config", "regard.errors"],
    "study": [f"regard.{name}" for name in STUDY],
}
NEVER = {  # room → what it may not import
    "tasks": ["models", "nn", "search", "training", "engine", "pipeline", "view"],
    "training": ["tasks", "align", "search", "models", "engine", "view", "pipeline", "predict"],
    "metrics": ["models", "nn", "search", "training", "engine", "pipeline", "view", "tasks", "align"],
    "view": ["models", "nn", "search", "training", "engine", "pipeline", "tasks", "align"],
    "engine": ["tasks", "align", "training", "pipeline", "predict"],
}


@pytest.mark.parametrize("where", ONLY)
def test_a_room_imports_only_what_it_may(where):
    modules = [name for name in MODULES if room(name) == where]
    assert modules
    for name in modules:
        ours = {each.target for each in IMPORTS[name] if within(each.target, "regard")}
        assert [target for target in sorted(ours) if not within(target, *ONLY[where])] == [], name


@pytest.mark.parametrize("where", NEVER)
def test_a_room_never_imports_what_it_must_not_know(where):
    modules = [name for name in MODULES if room(name) == where]
    assert modules
    for name in modules:
        wrong = {each.target for each in IMPORTS[name] if within(each.target, *(f"regard.{r}" for r in NEVER[where]))}
        assert wrong == set(), name


def test_only_the_top_knows_the_pipeline():
    knowing = {name for name in MODULES if any(within(each.target, "regard.pipeline") for each in IMPORTS[name])}
    below = {
        "data",
        "align",
        "tasks",
        "metrics",
        "nn",
        "models",
        "search",
        "training",
        "engine",
        "view",
        "config",
        "errors",
    }
    assert [name for name in sorted(knowing) if room(name) in below] == []


def test_only_commands_know_the_study():
    knowing = {name for name in MODULES if any(within(each.target, "regard.study") for each in IMPORTS[name])}
    assert {room(name) for name in knowing} == {"study", "commands"}


def test_of_the_study_only_that_of_layers_knows_networks():
    modules = [name for name in MODULES if room(name) == "study"]
    knowing = {name for name in modules if any(within(each.target, "regard.nn") for each in IMPORTS[name])}
    assert knowing < STUDY_OF_LAYERS


def test_there_are_no_import_cycles():
    """Between modules as they are imported; what a function imports when it is called cannot make one."""
    graph = {
        name: {each.target for each in IMPORTS[name] if each.at_once and each.target in MODULES and each.target != name}
        for name in MODULES
    }
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " → ".join((*path[path.index(name) :], name))
        if name not in done:
            for target in sorted(graph[name]):
                visit(target, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_init_files_of_rooms_import_nothing_of_ours():
    """So that importing one module never imports its neighbours."""
    for name, path in MODULES.items():
        if path.name == "__init__.py":
            at_once = {each.target for each in IMPORTS[name] if each.at_once and within(each.target, "regard")}
            assert at_once == set(), path


def test_every_test_above_sees_the_imports_it_should():
    """The parser itself: a few imports that are known to be there."""
    assert Import("torch", True) in IMPORTS["regard.nn.attention"]
    assert Import("regard.nn.attention", True) in IMPORTS["regard.models.base"]
    assert Import("torch", False) in IMPORTS["regard.view.record"]
    assert len(MODULES) > 40


# Torch


LIGHT = ["regard", "regard.engine.ctranslate2", "regard.engine.workers"] + [
    f"regard.{name}" for name in ("config", "errors", "metrics", "predict", "prepare", "directory", "evaluation")
]
HEAVY = ("torch", "safetensors.torch", "tensorboard", "matplotlib")


def light_modules() -> list[str]:
    light = [name for name in MODULES if room(name) in ("data", "align", "tasks", "study")]
    return LIGHT + [name for name in light if name not in STUDY_OF_LAYERS]


def test_the_text_column_imports_no_torch():
    """Neither directly nor through what it imports."""
    for start in light_modules():
        seen, waiting = set(), [start]
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            targets = {each.target for each in IMPORTS[name] if each.at_once}
            assert not [target for target in targets if within(target, *HEAVY)], f"{start} → {name}"
            waiting += [target for target in targets if target in MODULES]


@pytest.mark.parametrize("names", [["regard"], light_modules()], ids=["regard", "the text column"])
def test_importing_leaves_torch_alone(names):
    code = "import sys, importlib\nfor name in sys.argv[1:]: importlib.import_module(name)\n"
    code += "assert 'torch' not in sys.modules, 'torch was imported'"
    result = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr


# What is never used


def violations(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [str(node.module)]
            for name in names:
                if name.split(".")[0] in (
                    "pickle",
                    "cPickle",
                    "dill",
                    "cloudpickle",
                    "joblib",
                    "shelve",
                    "marshal",
                    "yaml",
                ):
                    yield f"line {node.lineno}: imports {name}"
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in (
                "eval",
                "exec",
                "builtins.eval",
                "builtins.exec",
                "torch.load",
                "torch.save",
                "os.system",
                "os.popen",
            ):
                yield f"line {node.lineno}: calls {called}"
            for keyword in node.keywords:
                if keyword.arg in ("shell", "allow_pickle") and ast.unparse(keyword.value) != "False":
                    yield f"line {node.lineno}: {keyword.arg}={ast.unparse(keyword.value)}"
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in ("torch.load", "torch.save"):
            yield f"line {node.lineno}: {ast.unparse(node)}"


def test_nothing_that_runs_what_a_file_says():
    """No pickle in any form, no code from text, no shell, no YAML."""
    assert {str(MODULES[name]): found for name, tree in TREES.items() if (found := list(violations(tree)))} == {}


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from yaml import safe_load",
        "torch.load(path)",
        "load = torch.load",
        "eval('1')",
        "exec(text)",
        "subprocess.run('ls', shell=True)",
        "np.load(path, allow_pickle=True)",
        "os.system('ls')",
    ],
)
def test_and_the_test_would_see_it(code):
    assert list(violations(ast.parse(code)))
    assert not list(violations(ast.parse("model.eval(); subprocess.run(['ls'], shell=False); file.load()")))


# Tables and mirrors


def test_every_model_of_the_table_can_be_imported():
    from regard.models.base import MODELS, Model, model_class

    for kind, place in MODELS.items():
        module, _, name = place.partition(":")
        assert getattr(import_module(module), name) is model_class(kind)
        assert issubclass(model_class(kind), Model)
        assert model_class(kind).__doc__
        assert import_module(module).__doc__


TESTED_ELSEWHERE = {  # test file → the modules it tests beside, or instead of, one of its own name
    "tests/test_architecture.py": ["__init__.py"],
    "tests/test_cli.py": ["errors.py"],
    "tests/test_models.py": ["models/base.py"],
    "tests/data/test_loader.py": ["data/batch.py", "data/plan.py", "data/worker.py"],
    "tests/data/test_tokenizer.py": ["data/subword.py"],
    "tests/commands/test_compare.py": ["study/compare.py"],
    "tests/commands/test_evaluate.py": ["evaluation.py"],
    "tests/test_pipeline.py": ["recipe.py", "tasks/translation.py"],
    "tests/commands/test_others.py": [
        "commands/attend.py",
        "commands/average.py",
        "commands/doctor.py",
        "commands/inspect.py",
        "commands/options.py",
        "commands/prepare.py",
        "commands/score.py",
    ],
    "tests/engine/test_rescore.py": ["engine/base.py"],
    "tests/training/test_checkpoint.py": ["training/archive.py", "training/storage.py"],
    "tests/training/test_loop.py": ["training/state.py", "training/update.py", "training/validation.py"],
}


def mirror(inner: str) -> Path:
    """data/store.py → tests/data/test_store.py; __main__.py, the command line, → tests/test_cli.py."""
    path = Path(inner)
    return TESTS / path.with_name("test_cli.py" if path.name == "__main__.py" else f"test_{path.name}")


def test_every_module_has_its_test_file():
    elsewhere = {inner for modules in TESTED_ELSEWHERE.values() for inner in modules}
    rooms = {f"{path.name}/__init__.py" for path in PACKAGE.iterdir()}
    modules = {path.relative_to(PACKAGE).as_posix() for path in FILES} - rooms
    assert sorted(inner for inner in modules - elsewhere if not mirror(inner).exists()) == []


def test_the_list_of_exceptions_is_true():
    for test, modules in TESTED_ELSEWHERE.items():
        assert (ROOT / test).exists(), test
        for inner in modules:
            assert (PACKAGE / inner).exists(), inner
            assert not mirror(inner).exists(), f"{inner} has a test file of its own now"


def listed_files(text: str) -> set[str]:
    """The paths in the fenced tree that has a line `regard/`: names by indentation, folders end in a slash."""
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    tree = next((block for block in blocks if re.search(r"^\W*regard/(\s|$)", block, re.MULTILINE)), "")
    found: set[str] = set()
    folders: list[tuple[int, str]] = []  # indentation and path of the folders we are in
    for line in filter(str.strip, tree.splitlines()):
        depth = len(line) - len(line.lstrip(" │├└─"))
        folders = [folder for folder in folders if folder[0] < depth]
        names = re.match(r"(?:[\w.]+(?:\.py|/)(?=[\s,]|$)[\s,]*)*", line[depth:])
        for name in re.findall(r"[\w./]+", names[0]) if names else []:
            path = (folders[-1][1] if folders else "") + name
            found.add(path)
            if name.endswith("/"):
                folders.append((depth, path))
    return found


def test_the_readme_tree_names_every_module():
    listed = listed_files((ROOT / "README.md").read_text(encoding="utf-8"))
    if not listed:
        pytest.skip("README.md has no tree of regard/ yet")
    modules = {path.relative_to(ROOT).as_posix() for path in FILES if path.name != "__init__.py"}
    assert sorted(modules - listed) == []
    assert sorted(name for name in listed if not (ROOT / name).exists()) == []


def test_the_tree_is_read_as_it_is_written():
    text = """
```
pip install regard
```
```text
regard/
  __main__.py    the command line; see pipeline.py
  data/          store.py, loader.py   what is on disk
    text.py      lines
  nn/
    loss.py      one function
tests/
```
"""
    found = {"data/store.py", "data/loader.py", "data/text.py", "nn/loss.py", "__main__.py", "data/", "nn/"}
    assert listed_files(text) == {"regard/", "tests/"} | {f"regard/{name}" for name in found}
    drawn = "```\nregard/\n├── nn/\n│   └── loss.py  # one\n└── config.py\n```"
    assert listed_files(drawn) == {"regard/", "regard/nn/", "regard/nn/loss.py", "regard/config.py"}
    assert listed_files("no tree") == set()
