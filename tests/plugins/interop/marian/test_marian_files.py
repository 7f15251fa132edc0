"""Marian models become runs that compute what Marian's formulas and others do."""

import importlib.util
import json
import re
import shutil
import zipfile

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
import yaml
from helpers import errors, torch_files
from helpers.command_line import run, run_json, run_refused, write
from helpers.marian_models import (
    LANGUAGE,
    LEFT_OUT,
    POST,
    PRE,
    D,
    hf_config,
    log_probs,
    settings,
    token_list,
    weights,
    write_hf,
    write_marian,
    write_splitters,
)
from helpers.numpy_transformer import randomise
from helpers.small_data import small_data
from helpers.tokenizer_checks import LINES, assert_graph_equals_python, random_ids
from safetensors.numpy import load_file, save_file

import t2t_keras
from t2t_keras import UserError
from t2t_keras.exporting.verify import Verification
from t2t_keras.hparam import HParams
from t2t_keras.plugins.interop.marian.files import load_marian
from t2t_keras.plugins.interop.marian.run import import_marian_run
from t2t_keras.plugins.interop.marian.transformers import load_hf_marian
from t2t_keras.plugins.interop.marian.transformers_export import export_hf_marian
from t2t_keras.plugins.interop.marian.vocabulary import (
    TokenList,
    marian_file,
    read_sentence_piece,
    read_tokens,
    token_from_piece,
)
from t2t_keras.run.checkpoint import (
    CheckpointDirectory,
    model_variables,
    write_checkpoint,
)
from t2t_keras.run.config import config_for
from t2t_keras.run.directory import RunDirectory
from t2t_keras.text.tokenizer import load_tokenizer
from t2t_keras.text.vocabulary import EOS, UNK

TEXTS = ["a dog sees the house", "the king knows the ship", f"{LANGUAGE} a bird", "x"]
TARGETS = ["ship les knows un king", "house", "les bird", "un"]


@pytest.fixture(scope="module")
def splitters(tmp_path_factory):
    folder = tmp_path_factory.mktemp("splitters")
    write_splitters(folder)
    return folder


def copy(splitters, folder):
    shutil.copytree(splitters, folder, dirs_exist_ok=True)
    return folder


def marian(splitters, folder, norms=POST, tying="all", lists=1, **changes):
    """Writes a random model; returns its variables and its lists of tokens."""
    token_lists = token_list(splitters, "source", "target")
    vocabs = [token_lists]
    if lists == 2:
        vocabs = [token_list(splitters, side) for side in ("source", "target")]
    sizes = len(vocabs[0]), len(vocabs[-1])
    variables = weights(sizes, tying, norms == PRE)
    write_marian(copy(splitters, folder), variables, settings(norms, **changes), vocabs)
    return variables, vocabs


def change_arrays(folder, changes):
    """Changes variables of a model: new ones by name, or functions of the old."""
    with np.load(folder / "model.npz") as file:
        arrays = dict(file)
    for name, change in changes.items():
        arrays[name] = change(arrays[name]) if callable(change) else change
    np.savez(folder / "model.npz", **arrays)


def change_decoder(folder, **changes):
    """Changes settings of decoder.yml; None removes them."""
    path = folder / "decoder.yml"
    config = yaml.safe_load(path.read_text())
    config |= {name.replace("_", "-"): value for name, value in changes.items()}
    config = {name: value for name, value in config.items() if value is not None}
    path.write_text(yaml.safe_dump(config))


def hf_marian(splitters, folder, tying="all", **changes):
    tokens = token_list(splitters, "source", "target")
    variables = weights((len(tokens), len(tokens)), tying, pre_norm=False)
    config = hf_config(
        len(tokens) + 1,
        share_encoder_decoder_embeddings=tying == "all",
        tie_word_embeddings=tying != "none",
        **changes,
    )
    write_hf(copy(splitters, folder), variables, config, tokens)
    return variables, [tokens]


def ids_of(splitters, side, tokens, text):
    """Marian's ids of a text: SentencePiece's pieces, then the list of tokens."""
    model = sentencepiece.SentencePieceProcessor(
        model_file=str(splitters / f"{side}.spm")
    )
    language = [LANGUAGE] if text.startswith(LANGUAGE) else []
    marian_pieces = model.encode(text.removeprefix(LANGUAGE), out_type=str)
    ids = {token: i for i, token in enumerate(tokens)}
    return [ids.get(token, 1) for token in [*language, *marian_pieces]] + [0]


def written(ids, pieces):
    """The pieces of ids without EOS, as the list of tokens has them."""
    tokens_of_ids = [pieces[i] for i in ids if i != 1]
    return [LANGUAGE if LANGUAGE in piece else piece for piece in tokens_of_ids]


def assert_computes(imported, splitters, variables, vocabs, **options):
    """The run's log-probabilities of `TARGETS` are those of Marian's formulas."""
    translator = imported.run.translator()
    for text, output in zip(TEXTS, TARGETS, strict=True):
        source = ids_of(splitters, "source", vocabs[0], text)
        target = ids_of(splitters, "target", vocabs[-1], output)
        expected = log_probs(variables, source, target, **options)
        ours = [translator.source_tokenizer.encode(text)]
        marian_ids = [translator.target_tokenizer.encode(output)]
        logits = translator.model(np.array(ours), np.array(marian_ids))
        actual = tf.nn.log_softmax(logits)[0].numpy()
        # Our ids are PAD 0, EOS 1, unknown 2, and then as there.
        assert marian_ids[0] == [{0: 1, 1: 2}.get(i, i + 1) for i in target]
        np.testing.assert_allclose(actual[:, 1:], expected, atol=1e-5, rtol=2e-6)
        assert actual[:, 0].max() < -30  # padding, which Marian does not have


@pytest.mark.parametrize(
    ("norms", "tying", "lists", "activation"),
    [
        (POST, "all", 1, "swish"),
        (PRE, "decoder", 2, "swish"),
        (POST, "decoder", 1, "relu"),
        (PRE, "none", 1, "relu"),
    ],
    ids=lambda value: "pre" if value is PRE else "post" if value is POST else None,
)
def test_a_marian_model_computes_marians_formulas(
    norms, tying, lists, activation, splitters, tmp_path
):
    folder = tmp_path / "opus"
    activations = {"transformer_ffn_activation": activation}
    made = marian(splitters, folder, norms, tying, lists, **activations)
    imported = import_marian_run(folder, tmp_path / "run", program="marian")
    options = {"pre_norm": norms == PRE, "swish": activation == "swish"}
    assert_computes(imported, splitters, *made, **options)
    matrices = len(imported.run.build_model().embeddings)
    assert matrices == {("all", 1): 1, ("decoder", 2): 2}.get((tying, lists), 3)


def test_a_softmax_matrix_that_marian_does_not_read(splitters, tmp_path):
    """With tied embeddings, Marian computes with the embeddings."""
    folder = tmp_path / "opus"
    variables, _ = marian(splitters, folder, tied_embeddings_all=True)
    change_arrays(folder, {"decoder_ff_logit_out_W": variables["Wemb"].T + 1})
    sentence = "decoder_ff_logit_out_W .*, which a model of its settings does not have"
    import_refused(sentence, folder)


@pytest.mark.parametrize(
    ("tying", "taken", "copies"),
    [
        ("all", "model.shared", ["lm_head"]),
        ("all", "model.shared", ["model.decoder.embed_tokens", "lm_head"]),
        ("decoder", "model.decoder.embed_tokens", ["lm_head"]),
    ],
)
def test_copies_of_a_tied_matrix(tying, taken, copies, splitters, tmp_path):
    """Equal copies are one matrix. Of others, the first is taken, and that is said."""
    folder = tmp_path / "hf"
    made = hf_marian(splitters, folder, tying)
    tensors = load_file(folder / "model.safetensors")
    matrix = tensors[f"{taken}.weight"]
    tensors |= {f"{name}.weight": matrix.copy() for name in copies}
    save_file(tensors, folder / "model.safetensors")
    assert load_hf_marian(folder).check == []
    tensors |= {f"{name}.weight": 2 * matrix for name in copies}
    save_file(tensors, folder / "model.safetensors")
    imported = import_marian_run(folder, tmp_path / "run", program="hf-marian")
    names = " and ".join(f"{name}.weight" for name in copies)
    (sentence,) = (line for line in imported.check if "lm_head" in line)
    assert sentence.startswith(
        f"model.safetensors: {taken}.weight was taken for {names}, which differs"
    )
    assert_computes(imported, splitters, *made, hf=True)


@pytest.mark.parametrize("tying", ["all", "decoder", "none"])
def test_the_form_of_transformers_computes_its_formulas(tying, splitters, tmp_path):
    made = hf_marian(splitters, tmp_path / "hf", tying)
    imported = import_marian_run(tmp_path / "hf", tmp_path / "run", program="hf-marian")
    assert_computes(imported, splitters, *made, hf=True)
    assert imported.run.hparams.dropout == 0.2


@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "legacy"])
def test_the_file_of_pytorch_gives_the_same_run(is_zip, splitters, tmp_path):
    """It is read where there are no safetensors."""
    hf_marian(splitters, tmp_path / "hf")
    expected = import_marian_run(tmp_path / "hf", tmp_path / "1", program="hf-marian")
    tensors = load_file(tmp_path / "hf" / "model.safetensors")
    torch_file = tmp_path / "hf" / "pytorch_model.bin"
    torch_file.write_bytes(b"not read")
    assert load_hf_marian(tmp_path / "hf").took["model"].endswith(".safetensors")
    (tmp_path / "hf" / "model.safetensors").unlink()
    torch_files.save(tensors, torch_file, is_zip)
    imported = import_marian_run(tmp_path / "hf", tmp_path / "2", program="hf-marian")
    assert imported.took["model"] == str(torch_file)
    assert imported.run.hparams == expected.run.hparams
    assert imported.run.config.vocab_sha256 == expected.run.config.vocab_sha256
    assert imported.run.config.decoding == expected.run.config.decoding
    assert_equal_weights(imported.run, expected.run)


def assert_equal_weights(run, other):
    ours, others = (model_variables(r.translator().model) for r in (run, other))
    assert ours.keys() == others.keys()
    for name, weight in others.items():
        np.testing.assert_array_equal(ours[name], weight)


@pytest.mark.parametrize("form", ["safetensors", "zip", "legacy"])
def test_transformers_agrees(form, splitters, tmp_path):
    """Also if PyTorch has saved its model, with all copies of the tied matrix."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    hf_marian(splitters, tmp_path / "hf")
    hf_model = transformers.MarianMTModel.from_pretrained(tmp_path / "hf").eval()
    if form != "safetensors":
        torch_file = tmp_path / "hf" / "pytorch_model.bin"
        is_zip = {"_use_new_zipfile_serialization": form == "zip"}
        torch.save(hf_model.state_dict(), torch_file, **is_zip)
        (tmp_path / "hf" / "model.safetensors").unlink()
    splits = transformers.MarianTokenizer(
        *(str(tmp_path / "hf" / name) for name in ("source.spm", "target.spm")),
        str(tmp_path / "hf" / "vocab.json"),
    )
    run = import_marian_run(tmp_path / "hf", tmp_path / "run", program="hf-marian").run
    ours = run.translator()
    for text, output in zip(TEXTS, TARGETS, strict=True):
        batch = splits([text], text_target=[output], return_tensors="pt")
        with torch.no_grad():
            logits = hf_model(**batch).logits
            generated = hf_model.generate(
                **splits([text], return_tensors="pt"),
                **{"num_beams": 1, "do_sample": False, "max_new_tokens": 8},
                bad_words_ids=[[splits.pad_token_id]],
            )
        expected = torch.log_softmax(logits, -1)[0].numpy()
        labels = batch.labels[0].numpy()
        (score,) = ours.score([text], [output])
        total = expected[np.arange(len(labels)), labels].sum()
        np.testing.assert_allclose(score.log_prob, total, atol=2e-5)
        (best,) = ours.n_best([text], beam_size=1, alpha=0.0, extra_length=20)
        tokens = splits.convert_ids_to_tokens(generated[0, 1:])
        pieces = written(best[0].ids, ours.target_tokenizer.pieces)
        expected = [token for token in tokens if token != "</s>"]
        assert pieces[: len(tokens)] == expected
        if "</s>" in tokens:
            text = splits.decode(generated[0], skip_special_tokens=True)
            assert best[0].text == text


@pytest.mark.parametrize(
    ("config", "options", "sentence"),
    [
        # Marian's own defaults.
        ({}, (12, 0.0), None),
        ({"beam_size": 6, "normalize": True}, (6, 1.0), None),
        ({"beam_size": 6, "normalize": 0}, (6, 0.0), None),
        ({"word_penalty": 0.5}, (12, 0.0), "word-penalty 0.5 has no counterpart"),
    ],
)
def test_the_search_of_marians_decoder(config, options, sentence, splitters, tmp_path):
    folder = tmp_path / "opus"
    marian(splitters, folder)
    change_decoder(folder, **{"beam_size": None, "normalize": None} | config)
    assert_searches(load_marian(folder), options, sentence)


@pytest.mark.parametrize(
    ("file", "config", "options", "sentence"),
    [
        # The defaults of `generate`.
        ("config", {}, (1, 1.0), None),
        ("config", {"num_beams": 6}, (6, 1.0), None),
        ("config", {"bad_words_ids": [[7]]}, (1, 1.0), "bad_words_ids [[7]] has no"),
        ("generation_config", {"length_penalty": 0.5}, (1, 0.5), None),
        ("generation_config", {"num_beams": 2, "do_sample": False}, (2, 1.0), None),
        ("generation_config", {"min_length": 3}, (1, 1.0), "min_length 3 has no coun"),
    ],
)
def test_the_search_of_transformers(
    file, config, options, sentence, splitters, tmp_path
):
    folder = tmp_path / "hf"
    changes = config if file == "config" else {"num_beams": 9}
    hf_marian(splitters, folder, **changes)
    if file != "config":
        (folder / f"{file}.json").write_text(json.dumps(config))
    assert_searches(load_hf_marian(folder), options, sentence)


def assert_searches(model, options, sentence):
    """The model has this beam size and power, and a sentence about something else."""
    beam_size, power = options
    expected = {"beam_size": beam_size, "length_penalty": "power", "alpha": power}
    assert model.decoding == expected
    warnings = model.check
    assert len(warnings) == (sentence is not None)
    assert sentence is None or sentence in warnings[0]


@pytest.mark.parametrize(("power", "beam_size"), [(1.0, 6), (0.5, 3)])
def test_the_run_searches_as_its_model(power, beam_size, splitters, tmp_path):
    """Scores are log-probabilities divided by length ** power; options override."""
    folder = tmp_path / "opus"
    variables, _ = marian(splitters, folder)
    bias = variables["decoder_ff_logit_out_b"]
    bias[0, 0] += 2.5  # EOS, after a few tokens
    change_arrays(folder, {"decoder_ff_logit_out_b": bias})
    change_decoder(folder, beam_size=beam_size, normalize=power)
    run = import_marian_run(folder, tmp_path / "run", program="marian").run
    translator = t2t_keras.load(run.path)
    *hypotheses, last = translator.n_best(TEXTS[:1], beam_size)[0]
    assert len({len(h.ids) for h in [*hypotheses, last]}) > 1
    for h in [*hypotheses, last]:
        np.testing.assert_allclose(h.score, h.log_prob / len(h.ids) ** power, rtol=1e-5)
    with pytest.raises(UserError, match=f"is more than beam_size {beam_size}"):
        translator.n_best(TEXTS[:1], beam_size + 1)
    options = {"length_penalty": "gnmt", "alpha": 0.6, "beam_size": 2}
    for h in translator.n_best(TEXTS[:1], 2, **options)[0]:
        penalty = ((5 + len(h.ids)) / 6) ** 0.6
        np.testing.assert_allclose(h.score, h.log_prob / penalty, rtol=1e-5)


def test_a_search_that_no_run_has(splitters, tmp_path):
    hf_marian(splitters, tmp_path / "hf", num_beams=1001)
    import_refused("num_beams .*at most 1000", tmp_path / "hf", "hf-marian")


@pytest.mark.parametrize("is_moved", [False, True])
def test_paths_from_where_marian_was_trained(
    is_moved, splitters, tmp_path, monkeypatch
):
    """Without `relative-paths`, they are not relative to the configuration."""
    folder = tmp_path / "exp" / "model"
    marian(splitters, folder)
    vocabs = ["model/vocab.yml"] * 2
    paths = {"models": ["model/model.npz"], "vocabs": vocabs}
    change_decoder(folder, relative_paths=False, **paths)
    monkeypatch.chdir(tmp_path if is_moved else tmp_path / "exp")
    model = load_marian("exp/model" if is_moved else "model")
    assert model.hparams.d_model == D


def test_a_device_is_not_read(splitters, tmp_path):
    marian(splitters, tmp_path / "opus")
    for devices in ({"vocabs": ["/dev/zero"] * 2}, {"models": ["/dev/zero"]}):
        change_decoder(tmp_path / "opus", relative_paths=False, **devices)
        import_refused("zero", tmp_path / "opus")


def test_types_of_input_that_only_training_reads(splitters, tmp_path):
    types = ["sequence", "sequence", "alignment", "weight"]
    marian(splitters, tmp_path / "opus", input_types=types)
    assert load_marian(tmp_path / "opus").hparams.d_model == D


# Vocabularies


@pytest.fixture(scope="module")
def tokenizers(splitters, tmp_path_factory):
    """Both sides of one list of tokens."""
    folder = tmp_path_factory.mktemp("tokenizers")
    tokens = TokenList.from_tokens(token_list(splitters, "source", "target"), folder)
    loaded = {}
    for side in ("source", "target"):
        path = splitters / f"{side}.spm"
        content = marian_file(read_sentence_piece(path), tokens.tokens, path)
        (folder / f"{side}.marian").write_bytes(content)
        loaded[side] = load_tokenizer(folder / f"{side}.marian")
    return loaded


@pytest.mark.parametrize("side", ["source", "target"])
def test_ids_match_sentencepiece_and_the_list(side, splitters, tokenizers):
    tokenizer = tokenizers[side]
    tokens = token_list(splitters, "source", "target")
    assert tokenizer.vocab_size == len(tokens) + 1
    lines = [
        *TEXTS,
        *TARGETS,
        "  the   ﬁne dog ① ",
        "",
        " ",
        "日本",
        "CAT cat",
        "cafés caféés é",
    ]
    for line in lines:
        expected_ids = ids_of(splitters, side, tokens, line)
        expected = [{0: 1, 1: 2}.get(i, i + 1) for i in expected_ids]
        assert tokenizer.encode(line) == expected
    assert UNK in tokenizers["source"].encode("a dog")  # it is among LEFT_OUT
    assert {"▁dog", "▁cat"} == LEFT_OUT
    assert tokenizers["source"].pieces == tokenizers["target"].pieces


def test_a_character_that_only_the_other_language_has(splitters, tokenizers):
    """Marian looks unknown characters up in the list, as transformers does."""
    tokens = token_list(splitters, "source", "target")
    assert tokens.index("é") + 1 in tokenizers["source"].encode("the cafés")
    assert UNK in tokenizers["source"].encode("the caféés")  # two are not in the list
    assert tokenizers["source"].encode("x </s>")[-2] != EOS


@pytest.mark.parametrize("side", ["source", "target"])
def test_the_graph_equals_python(side, tokenizers):
    tokenizer = tokenizers[side]
    lines = [*TEXTS, *TARGETS, *(line for line in LINES if "\0" not in line)]
    lines += ["the cafés", "the caféés"]
    ids = random_ids(tokenizer, 500)
    assert_graph_equals_python(tokenizer, tokenizer.graph(), lines, ids)


def test_the_unknown_token_prints_nothing(tokenizers):
    """As transformers' decode with skip_special_tokens; the graph is compared above."""
    tokenizer = tokenizers["target"]
    the, king = tokenizer.encode("un king")[0], tokenizer.encode("king")[0]
    assert tokenizer.decode([UNK]) == "" and tokenizer.token_bytes()[UNK] == b""
    for ids in ([the, UNK, king], [UNK, the, king, UNK], [the, king]):
        pieces = [tokenizer.pieces[i] for i in ids if i != UNK]
        assert tokenizer.decode(ids) == "".join(pieces).replace("▁", " ").strip()


def test_only_names_of_languages_lose_their_space():
    for piece in ("▁>>", "▁>>a", "▁the", ">>fra<<", "▁"):
        assert token_from_piece(piece) == piece
    assert token_from_piece("▁>>fra<<") == ">>fra<<"


def test_tokens_that_yaml_would_take_for_something_else(tmp_path):
    tokens = ["</s>", "<unk>", "no", "null", "1", "1.0", "~", "y", ":", "#", "- a", "é"]
    tokens += ['"', "'", "\\", "a: b", "\x85", "\u2028", "日", "=", "<<", "0x1", "\x7f"]
    lines = [f"{json.dumps(token)}: {i}\n" for i, token in enumerate(tokens)]
    (tmp_path / "v.yml").write_text("".join(lines), encoding="utf-8")
    assert read_tokens(tmp_path / "v.yml").tokens[3:] == tokens[2:]
    plain = ["</s>: 0", "<unk>: 1", "no: 2", "null: 3", "▁the: 4", "'1': 5"]
    write(tmp_path / "plain.yml", *plain)
    expected = ["<pad>", "</s>", "<unk>", "no", "null", "▁the", "1"]
    assert read_tokens(tmp_path / "plain.yml").tokens == expected
    write(tmp_path / "v.txt", "</s>", "<unk>", "no")
    assert read_tokens(tmp_path / "v.txt").original_ids.tolist() == [-1, 0, 1, 2]


# The whole path


@pytest.mark.slow
def test_it_is_verified_and_exported(splitters, tmp_path, capfd):
    folder = tmp_path / "opus"
    output_dir = tmp_path / "run"
    marian(splitters, folder)
    result = run_json(capfd, "import", folder, "--output_dir", output_dir)
    assert result["from"] == "marian"
    assert result["took"]["search"] == "beam_size=6,length_penalty=power,alpha=1.0"
    assert result["check"] == ["the problem translate_text; another one: --problem"]
    source = write(tmp_path / "source", *TEXTS)
    output = tmp_path / "o"
    flags = ("--output_dir", output_dir)
    assert run("translate", *flags, "--input", source, "--output", output) == 0
    verify = ("--output_dir", tmp_path / "2", "--verify", source, output)
    repeated = run_json(capfd, "import", folder, *verify)
    assert repeated["verified"]["identical"] == len(TEXTS)
    for export_format in ("savedmodel", "ctranslate2"):
        export = ("--export_dir", tmp_path / export_format, "--format", export_format)
        argv = ("export", *flags, *export, "--verify", 20)
        assert run(*argv) == 0, capfd.readouterr().err
        exported = t2t_keras.load(tmp_path / export_format)
        assert exported.options.beam_size == 6
        assert exported.options.length_penalty == "power"


# Mistakes


def import_refused(sentence, folder, program="marian"):
    run = folder.parent / "run"
    errors.refused(sentence, import_marian_run, folder, run, program=program)
    assert not run.exists()


@pytest.mark.parametrize(
    ("make", "changes", "sentence"),
    [
        (marian, {"type": "s2s"}, "model with type 's2s', only with 'transf"),
        (marian, {"transformer_dim_ffn": 32}, r"shape \[16, 24\], .* \[16, 32\]"),
        (marian, {"enc_depth": 1}, "has the variable encoder_l2_"),
        (marian, {"transformer_attention_mask": "alibi"}, "'alibi', only with 'def"),
        (marian, {"transformer_disable_position_embeddings": True}, "only with False"),
        (marian, {"input_types": ["class", "sequence"]}, r"input-types \['class',"),
        (hf_marian, {"scale_embedding": False}, "False, only with True"),
        (hf_marian, {"scale_embedding": None}, "None, only with True"),
        (hf_marian, {"activation_function": "gelu"}, "'gelu', only with 'relu' or"),
        (hf_marian, {"eos_token_id": 2}, "has eos_token_id 2, and in .* it is 0"),
        (hf_marian, {"encoder_layers": 3}, "no tensor model.encoder.layers.2.self"),
    ],
)
def test_models_that_are_refused(make, changes, sentence, splitters, tmp_path):
    make(splitters, tmp_path / "model", **changes)
    program = "marian" if make is marian else "hf-marian"
    import_refused(sentence, tmp_path / "model", program)


def test_files_that_are_refused(splitters, tmp_path, capfd):
    folder = tmp_path / "opus"
    marian(splitters, folder)

    def refused(sentence, source, *flags):
        argv = ("import", source, "--output_dir", tmp_path / "run", *flags)
        assert sentence in run_refused(capfd, *argv)
        assert not (tmp_path / "run").exists()

    refused("--last is for tensor2tensor's models", folder, "--last", 2)
    other_file = folder / "other.decoder.yml"
    shutil.copy(folder / "decoder.yml", other_file)
    refused("must have one decoder.yml, and has decoder.yml, other", folder)
    tokens = (folder / "vocab.yml").read_text().splitlines()
    write(folder / "short.yml", *tokens[:-1])
    change_decoder(folder, vocabs=["short.yml"] * 2)
    rows = len(tokens)
    sentence = f"matrix of {rows} rows, but its vocabulary has {rows - 1}"
    refused(sentence, folder / "decoder.yml")
    other_file.rename(folder / "decoder.yml")
    refused(f"there is no '{tmp_path / 'absent'}'", tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    refused("has no model: neither", tmp_path / "empty")
    write(tmp_path / "checkpoint_best.pt", "")
    refused("such as fairseq's checkpoints", tmp_path / "checkpoint_best.pt")
    model = folder / "model.npz"
    content = model.read_bytes()
    with zipfile.ZipFile(model, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a", b"0" * 9)
    central = b"PK\x01\x02\x14\x03\x14\0"
    for damage, reason in (
        ((b"a30", b"a\xff0"), "(Error -3"),
        ((central + b"\0", central + b"\1"), "(File"),  # encrypted
    ):
        damaged = model.read_bytes().replace(*damage)
        model.write_bytes(damaged)
        refused(
            f"model.npz is not a Marian model in NumPy's format, .npz {reason}", folder
        )
    model.write_bytes(content)
    (folder / "target.spm").rename(folder / "away")
    refused("target.spm, the SentencePiece model that splits the texts", folder)
    hf_marian(splitters, tmp_path / "hf")
    file = tmp_path / "hf" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    refused("model.safetensors is damaged or incomplete", tmp_path / "hf")


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (["model.bin", "config.json"], "is an export (ctranslate2), which only"),
        (["saved_model.pb"], "is an export (savedmodel), which only translates"),
        (["config.json", "hparams.json"], "is a run directory already; commands"),
    ],
)
@pytest.mark.parametrize("flags", [[], ["--from", "hf-marian"]])
def test_exports_and_runs_are_not_imported(files, sentence, flags, tmp_path, capfd):
    source = tmp_path / "source"
    source.mkdir()
    for name in files:
        write(source / name, "{}")
    argv = ("import", source, "--output_dir", tmp_path / "run", *flags)
    assert f"{source} {sentence}" in run_refused(capfd, *argv)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("encoder_l1_ffn_b1", lambda a: a[:, :5], "ffn_b1 has the shape [5]"),
        ("decoder_l1_ffn_W2", lambda a: a * np.nan, "values that are not finite"),
        ("decoder_ff_logit_out_b", lambda a: a[:, 1:], "an output bias of"),
    ],
)
def test_tensors_that_are_refused(name, change, sentence, splitters, tmp_path):
    folder = tmp_path / "opus"
    marian(splitters, folder)
    change_arrays(folder, {name: change})
    import_refused(re.escape(sentence), folder)


def test_separate_vocabularies_have_the_ids_of_the_configuration(splitters, tmp_path):
    hf_marian(splitters, tmp_path / "hf")
    tokens = json.loads((tmp_path / "hf" / "vocab.json").read_text())
    target_ids = {"<pad>": 0} | {t: i + 1 for i, t in enumerate(list(tokens)[:-1])}
    (tmp_path / "hf" / "target_vocab.json").write_text(json.dumps(target_ids))
    sentence = r"pad_token_id \d+, and in .*target.* it is 0"
    import_refused(sentence, tmp_path / "hf", "hf-marian")


def test_a_model_of_byte_pairs_with_other_tokens_is_refused(splitters, tmp_path):
    model = read_sentence_piece(splitters / "source.spm")
    tokens = [piece.piece for piece in model.pieces]
    model.trainer_spec.model_type = 2
    assert marian_file(model, ["<pad>", "</s>", "<unk>", *tokens[3:]], tmp_path)
    with pytest.raises(UserError, match="is not a unigram model, and the list of tok"):
        marian_file(model, ["<pad>", "</s>", "<unk>", "other"], tmp_path / "a.spm")


# Out again


def test_an_export_for_transformers_can_be_imported(splitters, tmp_path):
    """It has the tensors, the configuration and the ids of the model that was read."""
    hf_marian(splitters, tmp_path / "hf", num_beams=3, length_penalty=0.7)
    options = {"program": "hf-marian"}
    run = import_marian_run(tmp_path / "hf", tmp_path / "run", **options).run
    export_hf_marian(run.translator(), tmp_path / "out")
    imported = import_marian_run(tmp_path / "out", tmp_path / "again", **options).run
    assert imported.hparams == run.hparams
    assert imported.config.decoding == run.config.decoding
    assert_equal_weights(imported, run)
    for tokenizer, read in zip(run.tokenizers, imported.tokenizers, strict=True):
        assert [tokenizer.encode(text) for text in TEXTS] == list(
            map(read.encode, TEXTS)
        )


def sinusoidal_run(tmp_path):
    """A run as training makes it: no biases, the paper's positions, padding learned."""
    problem = small_data(tmp_path / "data")
    hparams = HParams(num_layers=1, d_model=16, d_ff=24, num_heads=2)
    config = config_for(problem, "small", tmp_path / "data", 0)
    run = RunDirectory.create(tmp_path / "run", config, hparams)
    model = randomise(run.build_model())
    weights = {name: v.numpy() for name, v in model_variables(model).items()}
    path = CheckpointDirectory(run.path).path(1)
    write_checkpoint(path, {"step": np.int64(1), **weights})
    return run


def test_a_trained_model_becomes_one_of_transformers(tmp_path):
    """Its columns are in another order; outputs and scores are the same."""
    run = sinusoidal_run(tmp_path)
    verify = None
    if importlib.util.find_spec("transformers"):
        verify = Verification(["a dog sees the house", "the king knows the ship"])
    export_hf_marian(run.translator(), tmp_path / "out", verify=verify)
    assert verify is None or verify.identical == 2
    options = {"program": "hf-marian"}
    imported = import_marian_run(tmp_path / "out", tmp_path / "again", **options).run
    assert imported.hparams.position == "halves"
    ours, imported_translator = (r.translator() for r in (run, imported))
    source = [ours.source_tokenizer.encode(TEXTS[0])]
    target = [ours.target_tokenizer.encode("ship the knows king the")]
    expected, actual = (
        t.model(np.array(source), np.array(target)).numpy()
        for t in (ours, imported_translator)
    )
    np.testing.assert_allclose(actual, expected, atol=1e-3)  # the epsilon differs
    assert np.ptp(expected) > 1


def test_models_that_transformers_cannot_express(splitters, tmp_path):
    marian(splitters, tmp_path / "opus")
    run = import_marian_run(tmp_path / "opus", tmp_path / "run", program="marian").run
    with pytest.raises(UserError, match="position is 't2t', and transformers' Marian"):
        export_hf_marian(run.translator(), tmp_path / "out")
    assert not (tmp_path / "out").exists()
