"""BLEU in languages without spaces between words, and the tokenization of a run.

The independent truth is sacreBLEU, which is told the target language.
"""

import json
import shutil

import pytest
from helpers.command_line import run, run_json, write
from helpers.errors import refused
from helpers.small_run import (
    HPARAMS,
    replace_loss,
    replace_search,
    replace_updates,
    untrained,
)
from sacrebleu.metrics import BLEU

import t2t_keras
from t2t_keras import registry
from t2t_keras.cli.evaluation import suffix_language
from t2t_keras.data.datagen import generate
from t2t_keras.data.sources import ParallelFiles
from t2t_keras.evaluation import tokenization as module
from t2t_keras.evaluation.bleu import Bleu, bleu_scores, metrics_of
from t2t_keras.evaluation.tokenization import (
    guessed_language,
    is_unspaced,
    sacrebleu,
    tokenization,
)
from t2t_keras.metrics import Metrics
from t2t_keras.problem import Problem
from t2t_keras.run.directory import RunDirectory

REFERENCES = {
    "zh": ["我每天早上六点起床。", "她的猫在屋顶上睡觉。", "明天会下雨吗?"],
    "ja": [
        "私は毎朝六時に起きます。",
        "彼女の猫は屋根の上で寝ている。",
        "明日は雨ですか。",
    ],
    "th": ["ฉันตื่นนอนตอนหกโมงเช้าทุกวัน", "แมวของเธอนอนอยู่บนหลังคา", "พรุ่งนี้ฝนจะตกไหม"],
    "lo": ["ຂ້ອຍຕື່ນນອນຫົກໂມງເຊົ້າທຸກມື້", "ແມວຂອງນາງນອນຢູ່ເທິງຫຼັງຄາ"],
    "km": ["ខ្ញុំក្រោកពីដំណេកនៅម៉ោងប្រាំមួយ", "ឆ្មារបស់នាងដេកលើដំបូល"],
    "my": ["ငါမနက်တိုင်းခြောက်နာရီမှာထတယ်", "သူမရဲ့ကြောင်ကခေါင်မိုးပေါ်မှာအိပ်နေတယ်"],
    "bo": ["ང་ནི་ཞོགས་པ་ཆུ་ཚོད་དྲུག་པར་ལང་གི་ཡོད།", "མོའི་ཞི་མི་ཐོག་ཁར་ཉལ་བསྡད་ཡོད།"],
}
SPACED = {
    "ko": ["나는 매일 아침 여섯 시에 일어난다.", "그녀의 고양이는 지붕 위에서 잔다."],
    "en": ["I get up at six in the morning.", "Her cat sleeps on the roof."],
    "ru": ["Каждое утро я встаю в шесть.", "Её кошка спит на крыше."],
    "hi": ["मैं रोज़ सुबह छह बजे उठता हूँ।", "उसकी बिल्ली छत पर सो रही है।"],
}


@pytest.fixture(autouse=True)
def _no_warning_printed():
    """Forgets which warnings have been printed, and whether MeCab is installed."""
    module._say_once.cache_clear()
    module._is_installed.cache_clear()


@pytest.fixture
def without_mecab(monkeypatch):
    monkeypatch.setattr(module, "_is_installed", lambda tokens: False)


@pytest.fixture
def with_mecab(monkeypatch):
    monkeypatch.setattr(module, "_is_installed", lambda tokens: True)


def test_the_default_of_a_language_matches_sacrebleu(with_mecab, capfd):
    expected = dict.fromkeys(SPACED, "13a") | BLEU._TOKENIZER_MAP
    assert {code: tokenization(code) for code in expected} == expected
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        *dict.fromkeys(
            ("zh_CN", "zh-TW", "ZH", "zho_Hant", "cmn", "yue"), "zh"
        ).items(),
        *{"zh_Latn": "13a", "ja_XX": "ja-mecab", "jpn_Jpan": "ja-mecab"}.items(),
        *{"kor": "ko-mecab", "ko_KR": "ko-mecab", "de_AT": "13a", "": "13a"}.items(),
        *dict.fromkeys(
            ("th", "tha_Thai", "lo", "km", "mya", "bo", "dz"), "char"
        ).items(),
    ],
)
def test_codes_with_a_region_or_three_letters(code, expected, with_mecab):
    assert tokenization(code) == expected


@pytest.mark.parametrize("code", REFERENCES)
def test_the_script_decides_for_an_unknown_language(code):
    assert guessed_language(REFERENCES[code]) == code and is_unspaced(code)
    quoting = [f"{text} ABC Co. 2024" for text in REFERENCES[code]]
    assert guessed_language(quoting) == code


def test_a_script_with_spaces_names_no_language():
    for texts in (*SPACED.values(), [], [""], ["2024 - 17"]):
        assert guessed_language(texts) is None
    quoting = [f"{text} 我 means I" for text in SPACED["en"]]
    assert guessed_language(quoting) is None


@pytest.mark.parametrize("code", REFERENCES)
@pytest.mark.parametrize("is_known", [True, False])
def test_a_text_compared_with_itself_scores_100(code, is_known, without_mecab, capfd):
    texts = REFERENCES[code]
    languages = ("en", code) if is_known else None
    scores = Bleu(languages=languages)
    assert scores.score(texts, texts, texts) == {"bleu": pytest.approx(100)}
    first_score = next(iter(scores.report(texts, texts, texts)["bleu"].items()))
    assert first_score == (
        f"sacrebleu_{'zh' if code == 'zh' else 'char'}",
        pytest.approx(100),
    )
    (metric, _) = metrics_of(
        Problem(summary="", metrics=scores), texts
    ).corpus_metrics()
    assert metric.score(metric.statistics(texts, texts, texts).sum(0)) > 99
    warnings = capfd.readouterr().err.splitlines()
    assert len(warnings) == (not is_known) + (code != "zh")
    assert len(set(warnings)) == len(warnings)
    for line in warnings:
        assert f"'{code}'" in line and ("(char)" in line or "not known" in line)


def test_scores_match_sacrebleu_for_the_language():
    references = REFERENCES["zh"]
    outputs = [text.replace("早上", "晚上") for text in references]
    expected = BLEU(trg_lang="zh").corpus_score(outputs, [references])
    report = Bleu(languages=("en", "zh")).score(outputs, outputs, references)
    assert report["bleu"] == expected.score < 100
    scores = bleu_scores(outputs, references, "zh_CN")
    assert scores["sacrebleu_zh"] == expected.score and scores["sacrebleu_13a"] == 0
    assert "tok:zh|" in scores["signatures"]["sacrebleu_zh"]
    assert not any("tokenized" in name for name in scores)  # Moses needs spaces
    # A tokenization that was chosen stays, whatever the language.
    explicit = Bleu(languages=("en", "zh"), bleu_tokens="13a")
    assert explicit.score(outputs, outputs, references) == {"bleu": 0}
    assert explicit.settings() == {"bleu_tokens": "13a"}
    assert Bleu(languages=("zh", "en")).settings() == {"bleu_tokens": "13a"}
    assert Bleu(languages=("zh", "en")).reversed().settings() == {"bleu_tokens": "zh"}


def test_korean_without_mecab_is_scored_by_characters(without_mecab, capfd):
    texts = SPACED["ko"]
    assert "sacrebleu_char" in bleu_scores(texts, texts, "ko")
    (line,) = capfd.readouterr().err.splitlines()
    assert 'pip install "sacrebleu[ko]"' in line and "ko-mecab" in line
    assert "sacrebleu_13a" in bleu_scores(texts, texts)  # has spaces
    assert capfd.readouterr().err == ""


def test_a_tokenization_that_cannot_be_loaded_is_refused(monkeypatch):
    def unavailable(**options):
        raise RuntimeError("\nIt needs extra dependencies.\nInstall them.")

    monkeypatch.setattr("sacrebleu.metrics.BLEU", unavailable)
    refused(r'MeCab .*: pip install "sacrebleu\[ja\]"', sacrebleu, "ja-mecab")
    refused("flores200: sacreBLEU cannot load it: It needs", sacrebleu, "flores200")


# By the command line.


@pytest.mark.parametrize(
    ("name", "flags", "expected_warning"),
    [("a.zh", (), 0), ("a.txt", ("--language", "zh"), 0), ("a.txt", (), 1)],
)
def test_files_are_scored_by_their_language(
    name, flags, expected_warning, capfd, tmp_path
):
    texts = REFERENCES["zh"]
    reference = write(tmp_path / name, *texts)
    other_reference = write(tmp_path / "b", *texts[:2], "她")
    argv = ("evaluate", "--hypotheses", reference, "--references", reference, *flags)
    assert run(*argv, "--json") == 0
    captured = capfd.readouterr()
    assert json.loads(captured.out)["bleu"]["sacrebleu_zh"] == pytest.approx(100)
    assert captured.err.count("\n") == expected_warning
    argv = ("compare", other_reference, reference, "--references", reference, *flags)
    argv += ("--bootstrap_samples", 9, "--randomization_trials", 9)
    scores = run_json(capfd, *argv)["metrics"]["bleu"]
    assert "|tok:zh|" in scores["signature"]
    assert scores["systems"][1]["score"] == pytest.approx(100)
    outputs = [*texts[:2], "她"]
    sacrebleu_score = BLEU(trg_lang="zh").corpus_score(outputs, [texts]).score
    assert scores["systems"][0]["score"] == pytest.approx(sacrebleu_score)


def test_a_suffix_names_a_language():
    for path, code in (("a.th", "th"), ("b/a.zh_CN.gz", "zh_CN"), ("a.de", "de")):
        assert suffix_language(path) == code
    for path in ("a", "a.txt", "a.xx", "zh"):
        assert suffix_language(path) is None


# In a run.


@pytest.fixture(scope="module")
def chinese_data(tmp_path_factory):
    """Data whose targets are Chinese, without languages."""
    folder = tmp_path_factory.mktemp("chinese")
    sources = [f"a{i} b{i % 7} c{i % 5}" for i in range(40)]
    targets = [REFERENCES["zh"][i % 3] + "一二三四五六七"[i % 7] for i in range(40)]
    files = ParallelFiles(
        write(folder / "a.en", *sources), write(folder / "a.zh", *targets)
    )
    problem = registry.problem("translate_text").replace(
        vocab_size=400, sources={"train": files, "dev": files}
    )
    generate(problem, folder / "data", workers=1)
    return folder / "data"


def train(data_dir, output_dir, steps, **options):
    changes = {"num_layers": 1, "d_model": 16, "d_ff": 16, "num_heads": 2}
    return t2t_keras.train(
        "translate_text",
        "tiny",
        data_dir=data_dir,
        output_dir=output_dir,
        hparams=changes | {"batch_tokens": 200, "warmup_steps": HPARAMS.warmup_steps},
        train_steps=steps,
        eval_sentences=0,
        save_every=2,
        **options,
    )


def test_a_run_keeps_its_tokenization(chinese_data, tmp_path, capfd, monkeypatch):
    replace_updates(monkeypatch)
    replace_search(monkeypatch)
    path = tmp_path / "run"
    train(chinese_data, path, 2, bleu_tokenize="char")
    train(chinese_data, path, 2)  # opened again, without saying it again
    opened = RunDirectory(path)
    assert opened.config.bleu_tokenize == "char"
    assert metrics_of(opened.problem).settings() == {"bleu_tokens": "char"}
    argv = ("evaluate", "--output_dir", path, "--split", "dev", "--eval_sentences", 2)
    assert "sacrebleu_char" in run_json(capfd, *argv)["bleu"]
    assert "sacrebleu_intl" in run_json(capfd, *argv, "--tokenize", "intl")["bleu"]
    *_, record = (path / "history.jsonl").read_text().splitlines()
    assert json.loads(record)["settings"] == {"bleu_tokens": "intl"}
    train(chinese_data, path, 2, bleu_tokenize="zh")
    assert RunDirectory(path).config.bleu_tokenize == "zh"


def test_a_run_without_languages_is_scored_by_its_script(
    chinese_data, tmp_path, capfd, monkeypatch
):
    replace_loss(monkeypatch)
    replace_search(monkeypatch)
    path = tmp_path / "run"
    untrained(chinese_data, path, seed=1)
    argv = ("evaluate", "--output_dir", path, "--split", "dev", "--eval_sentences", 2)
    assert "sacrebleu_zh" in run_json(capfd, *argv)["bleu"]
    *_, record = (path / "history.jsonl").read_text().splitlines()
    assert json.loads(record)["settings"] == {"bleu_tokens": "zh"}
    run_json(capfd, *argv, "--checkpoint", "all")
    curve = json.loads((path / "evaluation-dev" / "scores.json").read_text())
    assert curve["settings"]["bleu_tokens"] == "zh"


class Length(Metrics):
    selection_metric = "length"

    def score(self, sources, outputs, references):
        return {"length": 1.0}


def test_a_problem_that_is_not_scored_by_bleu_has_no_tokenization(
    trained_run, tmp_path, monkeypatch
):
    path = shutil.copytree(trained_run, tmp_path / "run")
    data_dir = RunDirectory(path).config.data_dir
    task = registry.problem("translate_text").replace(metrics=Length())
    monkeypatch.setattr("t2t_keras.registry.problem", lambda name: task)
    refused(
        "bleu_tokenize: problem 'translate_text' is not scored by BLEU",
        *(train, data_dir, tmp_path / "new", 2),
        bleu_tokenize="zh",
    )
    assert not (tmp_path / "new" / "config.json").exists()
