"""Cleaned copies of faulty files, their recipes, and the page that writes one."""

import re
import shlex
import tomllib

import pytest
from helpers.browser import needs_chromium
from helpers.command_line import run, run_json, run_refused, write
from helpers.errors import refused
from helpers.page_checks import check_page, check_tab_order, check_views

from t2t_keras.cli import program
from t2t_keras.plugins.corpus.cleaned_copy import (
    SplitRecipe,
    default_recipe,
    format_recipes,
    read_pairs_at,
    read_recipes,
)
from t2t_keras.plugins.corpus.inspection_page import MAX_PAIRS

# Sides of equal length, whose words do not tell which language they are in.
CLEAN = [(f"word number {i} here", f"wort nummer {i} hier") for i in range(60)]
FAULTY = {
    3: ("the same text", "the same text"),
    5: ("a &amp; b here", "a &amp; b hier"),
    8: ("", "nichts"),
    12: CLEAN[11],
    20: ("damaged \ufffd text", "schaden im text"),
    30: ("kept &lt; as it is", "kept &lt; wie es ist"),
}


@pytest.fixture
def files(tmp_path):
    pairs = [FAULTY.get(i, pair) for i, pair in enumerate(CLEAN)]
    source, target = zip(*pairs, strict=True)
    return {
        "--train_source": write(tmp_path / "a", *source),
        "--train_target": write(tmp_path / "b", *target),
        "--dev_source": write(tmp_path / "c", "word number 40 here", "a &amp; b"),
        "--dev_target": write(tmp_path / "d", "wort nummer 40 hier", "a &amp; c"),
    }


def command(files):
    return ["inspect", *(word for pair in files.items() for word in pair)]


def lines(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def copied(directory, split="train"):
    sides = [lines(directory / f"{split}.{side}") for side in ("source", "target")]
    return list(zip(*sides, strict=True))


def test_faulty_training_pairs_are_repaired_or_left_out(files, tmp_path, capfd):
    result = run_json(capfd, *command(files), "--apply", tmp_path / "new")
    expected = {i: FAULTY.get(i, pair) for i, pair in enumerate(CLEAN)}
    for index in (3, 8, 12, 20, 40):
        del expected[index]
    expected[5] = "a & b here", "a & b hier"
    expected[30] = "kept < as it is", "kept < wie es ist"
    assert copied(tmp_path / "new") == list(expected.values())
    applied = result["applied"]["train"]
    assert (applied["pairs"], applied["dropped"], applied["repaired"]) == (55, 5, 2)
    # Held-out data stay as they are.
    assert copied(tmp_path / "new", "dev")[1] == ("a &amp; b", "a &amp; c")
    recipe = read_recipes(tmp_path / "new/recipe.toml")
    assert recipe == {"train": default_recipe(True), "dev": default_recipe(False)}
    # The copy has no faults that the recipe names.
    for split in ("train", "dev"):
        for side in ("source", "target"):
            files[f"--{split}_{side}"] = tmp_path / f"new/{split}.{side}"
    kinds = [f["kind"] for f in run_json(capfd, *command(files))["findings"]]
    assert kinds == ["entities"]


def test_the_next_command_takes_the_copy(files, tmp_path, capfd):
    words = [*command(files), "--languages", "en-de", "--apply", tmp_path / "a copy"]
    assert run(*words) == 0
    inspect = program.parse(list(map(str, words)))
    _, *argv = shlex.split(inspect.next_command())
    datagen = program.parse(argv)
    assert datagen.train_source == str(tmp_path / "a copy" / "train.source")
    assert datagen.dev_target == str(tmp_path / "a copy" / "dev.target")
    assert (datagen.languages, datagen.test_source) == ("en-de", None)


def test_a_recipe_decides(files, tmp_path, capfd):
    recipe = write(
        tmp_path / "recipe.toml",
        "[train]",
        'entities = "unescape"',
        'identical = "drop"',
        'overlap = "keep"',
        "keep_lines = [31]",
    )
    argv = [*command(files), "--recipe", recipe, "--apply", tmp_path / "new"]
    assert run(*argv) == 0
    pairs = copied(tmp_path / "new")
    assert pairs[4] == ("a & b here", "a & b hier")
    assert FAULTY[30] in pairs and FAULTY[3] not in pairs and CLEAN[40] in pairs
    assert len(pairs) == 59  # what the recipe does not name is kept
    assert " have 59 pairs; " in capfd.readouterr().out
    assert "new exists already" in run_refused(capfd, *argv)


def test_an_empty_recipe_changes_nothing(files, tmp_path, capfd):
    recipe = write(tmp_path / "recipe.toml")
    argv = [*command(files), "--recipe", recipe, "--apply", tmp_path / "new"]
    applied = run_json(capfd, *argv)["applied"]["train"]
    assert (applied["pairs"], applied["dropped"], applied["repaired"]) == (60, 0, 0)
    for side in ("source", "target"):
        assert lines(tmp_path / f"new/train.{side}") == lines(files[f"--train_{side}"])


def test_what_is_kept_stays_as_it_is(tmp_path, capfd):
    """Only a line feed ends a line; no other character is replaced.

    A function of a user may yield a lone surrogate, which no file has.
    """
    texts = ["a\u2028b\x0cc", "d\x85e", "f\ud800g &amp; h", "i\rj"]
    (tmp_path / "usr").mkdir()
    write(
        tmp_path / "usr" / "__init__.py",
        "from t2t_keras.problem import Problem",
        "from t2t_keras.registry import register_problem",
        "@register_problem",
        "def odd_lines():",
        f"    pairs = [(text, text + ' k') for text in {texts!a}]",
        "    return Problem(summary='', sources={'train': lambda: iter(pairs)})",
    )
    recipe = write(tmp_path / "recipe.toml", "[train]", 'entities = "keep"')
    argv = ["inspect", "--usr_dir", tmp_path / "usr", "--problem", "odd_lines"]
    argv += ["--page", tmp_path / "page.html", "--recipe", recipe]
    applied = run_json(capfd, *argv, "--apply", tmp_path / "new")["applied"]["train"]
    assert (applied["pairs"], applied["dropped"], applied["repaired"]) == (4, 0, 0)
    content = (tmp_path / "new/train.source").read_bytes()
    assert content.decode("utf-8", "surrogatepass") == "\n".join([*texts, ""])
    assert "f?g &amp;amp; h</td>" in (tmp_path / "page.html").read_text("utf-8")


def test_actions():
    actions = {"swapped": "exchange", "entities": "unescape", "identical": "drop"}
    recipe = SplitRecipe(actions, frozenset([7]))
    pair = ("a &#39; b", "c @-@ d &quot;")
    assert recipe.apply(1, pair, []) == pair
    assert recipe.apply(1, pair, ["entities"]) == ("a ' b", 'c-d "')
    assert recipe.apply(1, pair, ["entities", "swapped"]) == ('c-d "', "a ' b")
    assert recipe.apply(1, pair, ["entities", "identical"]) is None
    assert recipe.apply(7, pair, ["entities", "identical"]) == pair
    assert recipe.apply(1, pair, ["length"]) == pair


def test_recipes_are_toml(tmp_path):
    recipes = {
        "train": SplitRecipe({"empty": "drop"}, frozenset([9, 3])),
        'train "a" é.b': SplitRecipe({"swapped": "exchange"}),
    }
    path = tmp_path / "recipe.toml"
    path.write_text(format_recipes(recipes), encoding="utf-8")
    assert read_recipes(path) == recipes
    assert tomllib.loads(path.read_text())["train"]["keep_lines"] == [3, 9]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[train", "is not TOML"),
        (f"a = {'[' * 3000}", "its lists or tables are nested too deeply"),
        ("train = 3", "'train' is not the table of a split"),
        ("[train]\nemty = 'drop'", "there is no fault 'emty'; did you mean 'empty'"),
        ("[train]\nempty = 'exchange'", "empty must be one of drop, keep, not"),
        ("[train]\nkeep_lines = 3", "keep_lines of .train. must be a list of numbers"),
    ],
)
def test_mistakes_in_recipes(text, message, tmp_path):
    path = write(tmp_path / "recipe.toml", text)
    refused(message, read_recipes, path)


def test_a_recipe_of_other_splits_is_refused(files, tmp_path, capfd):
    recipe = write(tmp_path / "recipe.toml", "[test]", 'empty = "drop"')
    argv = [*command(files), "--recipe", recipe, "--apply", tmp_path / "new"]
    sentence = run_refused(capfd, *argv)
    assert "has [test], but there are only train, dev" in sentence
    assert not (tmp_path / "new").exists()


def test_pairs_are_read_up_to_the_last_one():
    def source():
        yield from CLEAN[:5]
        raise AssertionError

    assert read_pairs_at(source, [4, 1]) == {1: CLEAN[1], 4: CLEAN[4]}
    assert read_pairs_at(source, []) == {}


@needs_chromium
def test_the_choices_of_the_page_are_a_recipe(files, tmp_path, capfd, chromium):
    hebrew = "שלום &amp; עולם " * 30
    source = lines(files["--train_source"])
    source[50:52] = [hebrew, f"<script>alert(1)</script> &amp; {'x' * 5000}"]
    write(files["--train_source"], *source)
    page = tmp_path / "page.html"
    assert run(*command(files), "--page", page) == 0
    with chromium.page() as shown:
        check_views(shown, page.as_uri())
        for width in (1280, 390):
            shown.open(page.as_uri(), width)
            shown.run("document.querySelectorAll('details').forEach(x => x.open = 1)")
            check_page(shown)
        check_tab_order(shown)
        assert shown.run("document.images.length + document.scripts.length") == 1
        entities = "article[data-fault=entities][data-split=train]"
        boxes = f"[...document.querySelectorAll('{entities} input')]"
        assert shown.run(f"{boxes}.every(x => x.checked)")
        assert shown.run(f"{boxes}.map(x => x.value)") == ["6", "31", "51", "52"]
        shown.run(f"{boxes}[1].click()")
        select = "document.querySelector('article[data-fault=identical] select')"
        shown.run(f"{select}.value = 'keep'")
        shown.run(f"{select}.dispatchEvent(new Event('change', {{bubbles: true}}))")
        recipe = shown.run("document.querySelector('#recipe').textContent")
        told = shown.run("document.querySelector('#choices code').textContent")
    path = write(tmp_path / "recipe.toml", recipe)
    recipes = read_recipes(path)
    assert recipe == format_recipes(recipes)
    train = recipes["train"]
    assert train.keep_lines == {31}
    assert (train.actions["identical"], train.actions["overlap"]) == ("keep", "drop")
    assert told.startswith("t2t inspect \\\n    --train_source")
    told = told.replace("recipe.toml", str(path)).replace(" cleaned", f" {tmp_path}/n")
    assert run(*told.replace("\\\n", "").split()[1:]) == 0
    pairs = copied(tmp_path / "n")
    assert FAULTY[3] in pairs and FAULTY[30] in pairs and FAULTY[5] not in pairs


def test_a_page_shows_the_first_pairs_of_many(tmp_path):
    pairs = [("same &amp;", "same &amp; as")] * (MAX_PAIRS + 5)
    source, target = zip(*pairs, strict=True)
    files = {
        "--train_source": write(tmp_path / "a", *source),
        "--train_target": write(tmp_path / "b", *target),
    }
    page = tmp_path / "page.html"
    assert run(*command(files), "--page", page) == 0
    text = page.read_text(encoding="utf-8")
    assert f"Show the first {MAX_PAIRS} of {MAX_PAIRS + 5} pairs" in text
    assert len(re.findall('type="checkbox"', text)) == 2 * MAX_PAIRS
