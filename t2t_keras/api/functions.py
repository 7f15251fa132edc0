"""The functions that do the work of the commands, with the arguments of `t2t`.

They import TensorFlow, and the plugins that they need, when they are called. The
annotations are texts, so that `help` shows the names of types, not what they stand for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from t2t_keras.checking import checked, require_type
from t2t_keras.errors import UserError, require_local

if TYPE_CHECKING:
    import keras

    from t2t_keras.api.calling import Result
    from t2t_keras.api.run import Run
    from t2t_keras.data.manifest import Manifest
    from t2t_keras.decoding.translator import Translator
    from t2t_keras.evaluation.tokenization import BleuTokens
    from t2t_keras.problem import Split
    from t2t_keras.training.hooks import HookPlugin

FilePath = str | Path
Checkpoint = str | int | Path
Engine = Literal["ctranslate2", "tensorflow"]


def datagen(
    problem: str,
    data_dir: FilePath,
    *,
    train_source: FilePath | None = None,
    train_target: FilePath | None = None,
    dev_source: FilePath | None = None,
    dev_target: FilePath | None = None,
    test_source: FilePath | None = None,
    test_target: FilePath | None = None,
    mixture: FilePath | None = None,
    languages: str | None = None,
    dev_size: int | None = None,
    test_size: int | None = None,
    vocab: FilePath | Sequence[FilePath] = (),
    vocab_size: int | None = None,
    clean: str | None = None,
    max_length: int | None = None,
    workers: int | None = None,
    seed: int = 0,
    usr_dir: FilePath | None = None,
    **flags: Any,
) -> Manifest:
    """Makes the data of a problem, as `t2t datagen` does.

        t2t_keras.datagen(
            "translate_text", "data", train_source="train.en", train_target="train.de",
            dev_size=1000,
        )

    Args:
        problem: the name of a registered problem.
        data_dir: the directory to write, which is made if it does not exist.
        train_source: the file of source texts of train, one sentence per line, which
            replaces the problem's; or a file of pairs, also given as `train_target`.
        train_target: the file of target texts of train.
        dev_source: the file of source texts of dev.
        dev_target: the file of target texts of dev.
        test_source: the file of source texts of test.
        test_target: the file of target texts of test.
        mixture: a TOML file that names the files of all splits.
        languages: the languages, such as "en-de"; None: the problem's, or those found
            in the texts.
        dev_size: number of pairs to take for dev out of the training pairs.
        test_size: number of pairs to take for test out of the training pairs.
        vocab: the vocabulary to use, or one for sources and one for targets, or a run
            directory that has them; (): they are trained.
        vocab_size: number of tokens of a vocabulary that is trained; None: the
            problem's, or one that suits the number of pairs.
        clean: rules that drop noisy training pairs, such as "identical,ratio=1.5", or
            "none"; None: the problem's.
        max_length: largest number of tokens on a side of a training pair; None: the
            problem's.
        workers: number of processes; None: one per core.
        seed: the order of the training examples depends on it.
        usr_dir: a folder of your own problems, imported first.
        **flags: what the problem's flags are for `t2t datagen`.

    Returns:
        The manifest of the directory, which says what it contains.

    Raises:
        UserError: a value is impossible, a source has a mistake, or the directory holds
            other data.
    """
    _call("datagen", locals())
    from t2t_keras import registry
    from t2t_keras.data.manifest import Manifest

    return Manifest.open(Path(data_dir), registry.problem(problem).data_name)


def train(
    problem: str | None = None,
    hparams_set: str | None = None,
    *,
    output_dir: FilePath,
    data_dir: FilePath | None = None,
    hparams: str | Mapping[str, object] = "",
    train_steps: int | None = None,
    seed: int | None = None,
    init_from: FilePath | None = None,
    log_every: int | None = None,
    eval_every: int | None = None,
    eval_sentences: int | None = None,
    bleu_tokenize: BleuTokens | Literal["auto"] | None = None,
    best_by: Literal["nll", "metric"] | None = None,
    save_every: int | None = None,
    save_minutes: float | None = None,
    keep: int | None = None,
    average_last: int | None = None,
    patience: int | None = None,
    max_minutes: float | None = None,
    steps_per_call: int | None = None,
    accumulate: int | None = None,
    simulate_devices: int = 0,
    usr_dir: FilePath | None = None,
    change_settings: bool = False,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    hooks: Sequence[str | HookPlugin] = (),
) -> Run:
    """Trains a model, or resumes its training, on all GPUs (or on the CPU).

        run = t2t_keras.train(
            "translate_ende_toy", "tiny", data_dir="data", output_dir="runs/toy"
        )
        run.translate(["I sleep."])

    Progress is on standard error and in the run directory. SIGTERM, SIGHUP and Ctrl-C
    save and end the training: the function returns, and the same call resumes it, or
    `train(output_dir="runs/toy")`.
    Keras' random seed is set, and operations on GPUs become deterministic, for the
    whole process.

    Args:
        problem: a registered name; None: the run in `output_dir` is resumed, and its
            settings stand for all that is not given.
        hparams_set: a registered name; None: with `init_from` the hyper-parameters of
            that run.
        output_dir: the run directory: a new one, or one whose training is resumed.
        data_dir: with data of the problem, which `datagen` wrote.
        hparams: changes to the set, as "dropout=0.2,num_layers=4" or by name.
        train_steps: total number of steps; None: the hparam set's.
        seed: the seed of the initial weights, the order of the data, and dropout; None:
            0.
        init_from: fine-tuning: a run directory, or a checkpoint in one, to take the
            initial weights from.
        log_every: number of steps between reports; for this option and the others up to
            `steps_per_call`, None is the default of `TrainOptions`, or the value of the
            run that is resumed without `problem`.
        eval_every: number of steps between evaluations.
        eval_sentences: number of dev sentences to decode at each evaluation.
        bleu_tokenize: sacreBLEU's tokenization of BLEU on dev.
        best_by: what the best checkpoint is chosen by.
        save_every: number of steps between checkpoints.
        save_minutes: minutes between checkpoints, instead of steps.
        keep: number of checkpoints to keep, besides the best one.
        average_last: number of checkpoints to average at the end; 0: no average.
        patience: number of evaluations without a new best that end the training; 0:
            they do not.
        max_minutes: minutes until the training ends, to be resumed; 0: no limit.
        steps_per_call: number of steps to run in one call of TensorFlow.
        accumulate: number of micro-batches into which each replica divides its part
            of a batch; None: 1.
        simulate_devices: number of replicas on the CPU, for tests; 0: one on every GPU.
        usr_dir: a folder with problems, models and hparam sets, imported first; None:
            the folder of the run that is resumed.
        change_settings: whether a run is resumed with other values of hyper-parameters
            such as `learning_rate`, `clip_norm` or `dropout`: those in
            `hparam.CHANGEABLE_FIELDS`.
        callbacks: Keras callbacks. An epoch is `eval_every` steps, and
            `on_train_batch_end` is called at each report only. The logs are the records
            of `metrics.jsonl`, with metrics on dev as "val_..." at the end of an epoch.
        hooks: hooks of plugins, such as "page", by name or as `HookPlugin`.

    Returns:
        The run. Its `result` has the last metrics, and what ended the training.

    Raises:
        UserError: a name, a value or the data are missing or do not go together; the
            run directory holds a run with other settings, or another process trains
            in it; the memory or the disk is too small; the training has diverged; the
            run directory was removed or replaced; a callback raised an error.
    """
    values = {name: x for name, x in locals().items() if x is not None}
    values["output_dir"] = output_dir
    from t2t_keras.api.calling import argument_names
    from t2t_keras.cli.training import Train
    from t2t_keras.training.train import train

    with argument_names(Train):
        result = train(**values)
    from t2t_keras.api.run import Run

    return Run(output_dir, result=result)


@checked
def load(
    output_dir: FilePath,
    checkpoint: Checkpoint | None = None,
    ensemble: Sequence[FilePath] = (),
) -> Run | Translator:
    """Loads a run or an export, to translate with it.

        run = t2t_keras.load("runs/my_run")
        run.translate(["A dog runs."])

    Both are a `Translator`, with the methods `translate`, `n_best` and `score`; a `Run`
    also has `evaluate`, `export`, `attention`, `history` and `describe`.

    Args:
        output_dir: the run directory that `train` wrote, or the directory that `export`
            wrote.
        checkpoint: a step, "latest", "average", "best", "ema", or a path; None: the
            average of the newest checkpoints if there is one, else the newest. Must be
            None for an export.
        ensemble: further run directories with the same vocabularies; all models decode
            together.

    Returns:
        The run, with the weights of the checkpoint, or the export.

    Raises:
        UserError: there is no such run, export or checkpoint.
    """
    require_local("output_dir", output_dir)
    if not str(output_dir):
        raise UserError("output_dir is empty; give a directory")
    from t2t_keras.exporting.formats import find_loader

    if load_export := find_loader(Path(output_dir)):
        if checkpoint is not None or ensemble:
            name = "ensemble" if ensemble else "checkpoint"
            raise UserError(
                f"{name}: {output_dir} is an export, which has only one; leave it out"
            )
        return load_export(Path(output_dir))
    from t2t_keras.api.run import Run

    return Run(output_dir, checkpoint, ensemble).read_weights()


def evaluate(
    output_dir: FilePath | None = None,
    split: Split | None = None,
    *,
    checkpoint: Checkpoint | None = None,
    export_dir: FilePath | None = None,
    data_dir: FilePath | None = None,
    eval_sentences: int | None = None,
    output: FilePath | None = None,
    hypotheses: FilePath | None = None,
    references: FilePath | None = None,
    tokenize: BleuTokens | None = None,
    language: str | None = None,
    engine: Engine | None = None,
    wait_minutes: float | None = None,
    usr_dir: FilePath | None = None,
    **decoding: Any,
) -> Result:
    """Scores a run on a split, or one file against another, as `t2t evaluate` does.

        t2t_keras.evaluate("runs/my_run", "test")["bleu"]

    Args:
        output_dir: a run directory; None: `hypotheses` and `references` are compared.
        split: the split; None: test if there is one, otherwise dev.
        checkpoint: see `load`; or "all", every checkpoint that is not evaluated yet.
        export_dir: an export of the run, to evaluate in place of a checkpoint.
        data_dir: the data directory; None: the one used in training.
        eval_sentences: number of sentences to decode; None: all; 0: none. The nll is
            computed on the whole split.
        output: a prefix: the texts are written to PREFIX.source, .reference and
            .hypothesis.
        hypotheses: a file of outputs, one per line.
        references: the file of the correct outputs.
        tokenize: sacreBLEU's tokenization for an additional score; None: the one of the
            run, or the one for the language.
        language: the language of the references; None: the problem's, or the suffix of
            `references`.
        engine: the library that computes the model; None: CTranslate2 on a CPU where it
            can be used, otherwise TensorFlow.
        wait_minutes: with `checkpoint="all"`: minutes to wait for a new checkpoint.
        usr_dir: a folder of your own problems, imported first.
        **decoding: see `DecodingOptions`.

    Returns:
        The metrics by name, what `t2t evaluate --json` prints.

    Raises:
        UserError: a value is impossible, or does not go with another; there is no such
            run, split or checkpoint.
    """
    return _call("evaluate", locals() | {"all": True})


def export(
    output_dir: FilePath,
    export_dir: FilePath,
    *,
    checkpoint: Checkpoint | None = None,
    format: str = "savedmodel",
    quantization: str | None = None,
    verify: int = 20,
    ensemble: FilePath | Sequence[FilePath] = (),
    overwrite: bool = False,
    usr_dir: FilePath | None = None,
    **decoding: Any,
) -> Result:
    """Exports a run, for a server or for another program, as `t2t export` does.

        t2t_keras.export("runs/my_run", "served/1")

    Args:
        output_dir: a run directory.
        export_dir: the directory to write.
        checkpoint: see `load`.
        format: "savedmodel", or the name of another format, such as "ctranslate2".
        quantization: the dtype to which the weights are rounded; None: float32.
        verify: number of sentences whose outputs must equal the run's; 0: the export is
            not verified.
        ensemble: further run directories with the same vocabularies.
        overwrite: whether an earlier export may be replaced.
        usr_dir: a folder of your own problems, imported first.
        **decoding: options that are fixed in the export, see `DecodingOptions`.

    Returns:
        The size of the export, and how it was verified.

    Raises:
        UserError: a value is impossible, there is no such run or checkpoint, the
            directory is not empty, or outputs of the export differ from the run's.
    """
    return _call("export", locals())


def average(output_dir: FilePath, last: int) -> Path:
    """Averages the newest checkpoints of a run, as `t2t average` does.

    Args:
        output_dir: a run directory.
        last: number of checkpoints.

    Returns:
        The path of the average, which `load` takes by default.

    Raises:
        UserError: there is no such run, or it has fewer checkpoints.
    """
    return Path(_call("average", locals())["checkpoint"])


def compare(
    *systems: FilePath,
    metric: str | Sequence[str] = (),
    references: FilePath | None = None,
    input: FilePath | None = None,
    problem: str | None = None,
    page: FilePath | None = None,
    data_dir: FilePath | None = None,
    split: Split | None = None,
    eval_sentences: int | None = None,
    checkpoint: Checkpoint | None = None,
    tokenize: BleuTokens | None = None,
    language: str | None = None,
    bootstrap_samples: int = 1000,
    randomization_trials: int = 10_000,
    engine: Engine | None = None,
    usr_dir: FilePath | None = None,
    **decoding: Any,
) -> Result:
    """Tests whether systems differ by more than chance, as `t2t compare` does.

        t2t_keras.compare("runs/a", "runs/b")
        t2t_keras.compare("a.txt", "b.txt", references="test.de")

    Args:
        *systems: two or more run directories, checkpoints, files of outputs, or exports
            beside a run; each is compared with the first.
        metric: metrics of the problem, such as "bleu", or registered scorers; (): the
            problem's.
        references: if all systems are files, the file of the correct outputs.
        input: if all systems are files, the file of the sources.
        problem: if all systems are files, the problem whose metrics are computed; None:
            BLEU and chrF.
        page: a file for an HTML page with the sentences whose scores differ most.
        data_dir: for runs: the data directory; None: the one used in training.
        split: for runs: the split; None: test if there is one, otherwise dev.
        eval_sentences: for runs: number of sentences to translate; None: all.
        checkpoint: for runs: the checkpoint, see `load`.
        tokenize: sacreBLEU's tokenization for BLEU; None: the one of the run, or the
            one for the language.
        language: the language of the references; None: the problem's, or the suffix of
            `references`.
        bootstrap_samples: number of samples of the paired bootstrap.
        randomization_trials: number of trials of approximate randomization.
        engine: see `evaluate`.
        usr_dir: a folder of your own problems and scorers, imported first.
        **decoding: see `DecodingOptions`; for runs only.

    Returns:
        The scores and p-values, what `t2t compare --json` prints.

    Raises:
        UserError: a value is impossible, or does not go with the systems; a system is
            neither a file nor a run nor an export.
    """
    return _call("compare", locals())


def inspect(
    problem: str = "translate_text",
    *,
    data_dir: FilePath | None = None,
    train_source: FilePath | None = None,
    train_target: FilePath | None = None,
    dev_source: FilePath | None = None,
    dev_target: FilePath | None = None,
    test_source: FilePath | None = None,
    test_target: FilePath | None = None,
    mixture: FilePath | None = None,
    languages: str | None = None,
    page: FilePath | None = None,
    apply: FilePath | None = None,
    recipe: FilePath | None = None,
    usr_dir: FilePath | None = None,
    **flags: Any,
) -> Result:
    """Looks for faults in a corpus or a data directory, as `t2t inspect` does.

        t2t_keras.inspect(train_source="train.en", train_target="train.de")

    Args:
        problem: the name of a registered problem.
        data_dir: a data directory whose examples are inspected; None: the problem's
            sources, or the files.
        train_source: the file of source texts of train; or a file of pairs, also given
            as `train_target`.
        train_target: the file of target texts of train.
        dev_source: the file of source texts of dev.
        dev_target: the file of target texts of dev.
        test_source: the file of source texts of test.
        test_target: the file of target texts of test.
        mixture: a TOML file that names the files of all splits.
        languages: the languages that the data should have, such as "en-de".
        page: a file for an HTML page that shows the faulty pairs.
        apply: a new directory for a cleaned copy of the files.
        recipe: a file that the page saves, which says what `apply` does with each
            fault.
        usr_dir: a folder of your own problems, imported first.
        **flags: what the problem's flags are for `t2t inspect`.

    Returns:
        The measurements of each split, and the findings: what `t2t inspect --json`
        prints.

    Raises:
        UserError: a value is impossible, or a file cannot be read.
    """
    return _call("inspect", locals())


def import_model(
    source: FilePath,
    output_dir: FilePath,
    *,
    program: Literal["t2t", "marian", "hf-marian"] | None = None,
    problem: str | None = None,
    data_dir: FilePath | None = None,
    verify: Sequence[FilePath] = (),
    vocab: FilePath | Sequence[FilePath] = (),
    hparams_json: FilePath | None = None,
    target_space_id: int | None = None,
    last: int | None = None,
    usr_dir: FilePath | None = None,
) -> Run:
    """Makes a run directory of another program's model, as `t2t import` does.

        run = t2t_keras.import_model("Helsinki-NLP/opus-mt-en-de", "runs/opus")
        run.translate(["A dog runs."])

    Args:
        source: the files of the model: a directory of tensor2tensor, Marian or Hugging
            Face transformers, a checkpoint, a ZIP file of Marian or its address, or
            `OWNER/NAME[@REVISION]` on the Hugging Face Hub.
        output_dir: the run directory to write.
        program: the program that wrote the model; None: the files say it.
        problem: the problem to use the model for; None: the model's own, or
            "translate_text".
        data_dir: data with the same vocabularies, for `evaluate`.
        verify: a file of sources and a file of the other program's outputs, with which
            the run's outputs are compared.
        vocab: tensor2tensor's vocabulary of both languages, or one for sources and one
            for targets; (): the files beside the model.
        hparams_json: tensor2tensor's hyper-parameters; None: hparams.json beside the
            checkpoint.
        target_space_id: tensor2tensor's target_space_id; None: the value in training.
        last: number of checkpoints to import of tensor2tensor; None: 1.
        usr_dir: a folder of your own problems, imported first.

    Returns:
        The run.

    Raises:
        UserError: the files are not a model of these programs, or the directory is
            taken.
    """
    require_type("source", FilePath, source)
    _call("import", locals() | {"source": str(source)})
    from t2t_keras.api.run import Run

    return Run(output_dir)


def _call(command: str, arguments: Mapping[str, Any]) -> Result:
    """Runs a command with the arguments of a function."""
    from t2t_keras.api.calling import call

    return call(command, arguments)
