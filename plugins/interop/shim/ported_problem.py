"""Users' problems of tensor2tensor, as problems of this package."""

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Self

from t2t_keras.cli.command import FlagGroup
from t2t_keras.data.manifest import vocab_files
from t2t_keras.errors import UserError
from t2t_keras.options import option
from t2t_keras.problem import SIDES, Problem, Split, TextProcessor
from t2t_keras.text.vocabulary import write_vocabulary
from t2t_keras.usr_dir import definition_location, error_in_file

from . import say_once
from .encoders import TextEncoder
from .hparams import named_set
from .ported_members import (
    MEMBERS_WITHOUT_EFFECT,
    default_vocab_size,
    is_overridden,
    makes_vocabulary,
    num_shards,
    require_usable,
    tokenizer_name,
)
from .ported_samples import Samples, SplitSource, seeded
from .problems import Problem as T2TProblem
from .problems import Text2TextProblem, generate_vocab

# `generate_samples` gets this `tmp_dir` by default, as in tensor2tensor.
TMP_DIR = os.environ.get("T2T_TMP_DIR", "/tmp/t2t_datagen")


def port_problem(t2t_problem: T2TProblem) -> "PortedProblem":
    """Returns a user's problem as a problem of this package.

    Raises:
        UserError: it cannot be used; the message names the member.
    """
    original = require_usable(t2t_problem)
    tokenizer = tokenizer_name(original)
    symbols: tuple[str, ...] = ()
    if tokenizer == "t2t_subword":
        symbols = tuple(original.additional_reserved_tokens)
    problem = PortedProblem(
        summary=(type(original).__doc__ or "").strip().partition("\n")[0],
        sources={},
        tokenizer=tokenizer,
        vocab_size=default_vocab_size(original),
        text_processor=TextProcessor(symbols=symbols),
        original=original,
    )
    if is_overridden(original, "max_length"):
        max_length = original.max_length(named_set("transformer_base"))
        problem = problem.replace(max_length=max_length)
    samples = Samples(original, TMP_DIR, TMP_DIR)
    sources = {split: SplitSource(samples, split) for split in num_shards(original)}
    return problem.replace(sources=sources)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PortedFlags:
    """The flag of `t2t datagen` for users' problems of tensor2tensor."""

    tmp_dir: str | None = option(
        None,
        "the directory for downloads, and for files that generate_samples reads there "
        f"(default: $T2T_TMP_DIR, or {TMP_DIR})",
        metavar="DIR",
        group=FlagGroup("problems of tensor2tensor"),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PortedProblem(Problem):
    """A user's problem of tensor2tensor, as a problem of this package.

    Attributes:
        original: the user's problem.
        tmp_dir: the directory for downloads and temporary files.
    """

    flags: ClassVar[type | None] = PortedFlags

    original: Text2TextProblem
    tmp_dir: str = TMP_DIR

    def with_flags(self, flags: PortedFlags) -> Self:
        """Returns the problem with the directory that `--tmp_dir` gives."""
        if not flags.tmp_dir:
            return self
        return self._in_directories(flags.tmp_dir, flags.tmp_dir)

    def _in_directories(self, data_dir: str, tmp_dir: str) -> Self:
        """Returns the problem with these directories for its methods."""
        samples = Samples(self.original, data_dir, tmp_dir)
        sources = dict(self.sources)
        for split, source in sources.items():
            if isinstance(source, SplitSource):
                sources[split] = SplitSource(samples, split)
        return self.replace(sources=sources, tmp_dir=tmp_dir)

    def in_data_dir(self, data_dir: Path) -> Self:
        """Returns the problem with samples and vocabulary for a data directory.

        A subword vocabulary, and one that the user's methods make, is made here.

        Raises:
            UserError: the user's code has an error, or no tokenizer is like its
                vocabulary.
        """
        original = self.original
        self._say_ignored_members()
        os.makedirs(data_dir, exist_ok=True)
        problem = self._in_directories(str(data_dir), self.tmp_dir)
        names = vocab_files(problem).values()
        makes_its_own = self.tokenizer == "t2t_tokens" or makes_vocabulary(original)
        # Such a problem may also make this file and encode with another.
        may_be_unused = makes_its_own and original.vocab_filename in names
        if not may_be_unused and all((data_dir / name).exists() for name in names):
            # The user gave them by --vocab, or an earlier run made them.
            return problem
        if makes_its_own:
            if self.vocab_size != default_vocab_size(original):
                raise UserError(
                    f"problem '{self.data_name}' makes its vocabulary itself, so "
                    "--vocab_size has no effect; leave it out"
                )
            return problem._with_vocabulary(data_dir)
        if self.tokenizer == "t2t_subword":
            problem._train_vocabulary(data_dir)
        return problem

    def _say_ignored_members(self) -> None:
        """Prints a remark on each member that has no effect."""
        prefix = f"problem '{self.data_name}':"
        for member, reason in MEMBERS_WITHOUT_EFFECT.items():
            if is_overridden(self.original, member):
                say_once(f"{prefix} {member} has no effect: {reason}")
        if stands_for := getattr(self.original, "stands_for", ""):
            say_once(
                f"{prefix} tensor2tensor's {stands_for} does not exist here; its "
                "members are those of TranslateProblem"
            )
        if self.original.additional_reserved_tokens and not self.symbols:
            say_once(
                f"{prefix} additional_reserved_tokens has no effect with this "
                "vocab_type"
            )

    def _with_vocabulary(self, data_dir: Path) -> Self:
        """Returns the problem with the vocabulary that its methods make."""
        source, target = self._encoders(data_dir)
        if source.tokenizer != target.tokenizer:
            raise UserError(
                f"problem '{self.data_name}': its inputs and targets have vocabularies "
                "of different types; use the same type"
            )
        contents = [_vocabulary_content(source), _vocabulary_content(target)]
        problem = self.replace(
            tokenizer=source.tokenizer,
            vocab_size=max(content.count(b"\n") for content in contents),
            shared_vocab=contents[0] == contents[1],
        )
        names = vocab_files(problem)
        for side, content in zip(SIDES, contents, strict=True):
            path = data_dir / names[side]
            if path.exists() and path.read_bytes() != content:
                raise UserError(f"{path} is another vocabulary; give a new --data_dir")
            write_vocabulary(path, content)
        return problem

    def _train_vocabulary(self, data_dir: Path) -> None:
        """Trains the vocabulary that tensor2tensor trains, on the same texts."""
        source = self.sources.get("train")
        if not isinstance(source, SplitSource):
            # The user gave other files, and their texts are what a vocabulary needs.
            return
        # A sample that has another form is named before its text is missing.
        source.samples.generate("train")
        name = vocab_files(self)["source"]
        size = self.vocab_size or default_vocab_size(self.original)
        with self._errors_named(), seeded():
            generate_vocab(self.original, str(data_dir), self.tmp_dir, name, size)

    @contextlib.contextmanager
    def _errors_named(self) -> Iterator[None]:
        """Raises UserError with the name of the problem for errors of user's code."""
        try:
            yield
        except UserError as error:
            if f"'{self.data_name}': " in str(error):
                raise
            raise UserError(f"problem '{self.data_name}': {error}") from error
        except Exception as error:
            location = definition_location(type(self.original))
            raise error_in_file(error, location, self.data_name) from error

    def _encoders(self, data_dir: Path) -> tuple[TextEncoder, TextEncoder]:
        """Returns the encoders of inputs and targets.

        Raises:
            UserError: the user's code has an error, or an encoder is a user's.
        """
        source = self.sources.get("train")
        with self._errors_named(), seeded():
            if isinstance(source, SplitSource):
                # The user's generator may write the vocabulary file, or yield ids.
                source.samples.generate("train")
                if source.samples.encoders.keys() >= {"inputs", "targets"}:
                    return _both_encoders(source.samples.encoders)
            encoders = _both_encoders(self._make_encoders(data_dir))
            for split in self.sources:
                self._check_tokens(split, encoders)
            return encoders

    def _make_encoders(self, data_dir: Path) -> Mapping[str, object]:
        """Returns the encoders that the problem makes, by "inputs" and "targets"."""
        original = self.original
        if not is_overridden(original, "feature_encoders"):
            encoder = original.get_or_create_vocab(str(data_dir), self.tmp_dir)
            return {"inputs": encoder, "targets": encoder}
        if not is_overridden(original, "get_or_create_vocab"):
            with contextlib.suppress(UserError, OSError):
                original.get_or_create_vocab(str(data_dir), self.tmp_dir)
        return original.feature_encoders(str(data_dir))

    def _check_tokens(
        self, split: Split, encoders: tuple[TextEncoder, TextEncoder]
    ) -> None:
        """Encodes all texts if an encoder refuses tokens outside its vocabulary."""
        if not any(encoder.tokenizer == "t2t_tokens" for encoder in encoders):
            return
        for sample_number, pair in enumerate(self.sources[split](), 1):
            try:
                for encoder, text in zip(encoders, pair, strict=True):
                    encoder.encode(text)
            except UserError as error:
                raise UserError(f"{split} sample {sample_number}: {error}") from None


def _both_encoders(encoders: Mapping[str, object]) -> tuple[TextEncoder, TextEncoder]:
    """Returns the encoders of inputs and targets."""
    return _known_encoder(encoders["inputs"]), _known_encoder(encoders["targets"])


def _known_encoder(encoder: object) -> TextEncoder:
    """Returns an encoder; raises UserError if no tokenizer here is like it."""
    if (
        isinstance(encoder, TextEncoder)
        and encoder.tokenizer is not None
        and not is_overridden(encoder, "encode")
    ):
        return encoder
    raise UserError(
        f"its encoder {type(encoder).__name__} has no tokenizer here; use "
        "SubwordTextEncoder, TokenTextEncoder or ByteTextEncoder"
    )


def _vocabulary_content(encoder: TextEncoder) -> bytes:
    """Returns the content of the encoder's vocabulary file."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "vocab"
        encoder.write(path)
        return path.read_bytes()
