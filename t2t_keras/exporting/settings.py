"""The settings of an export, and the translator that they describe."""

import contextlib
import dataclasses
import importlib.metadata
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from t2t_keras import registry
from t2t_keras.decoding.engine import Engine
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.decoding.translator import Translator
from t2t_keras.errors import UserError
from t2t_keras.files.json_files import from_fields, read_json
from t2t_keras.problem import Problem, TextProcessor

if TYPE_CHECKING:
    from t2t_keras.decoding.graph_engine import ModelTranslator
    from t2t_keras.exporting.verify import Verification

SETTINGS = "t2t_export.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportSettings:
    """The settings of an export, `t2t_export.json`. A format may have more.

    Attributes:
        version: the version of this package that wrote it.
        problem: the name of the problem.
        languages: the language codes of source and target; None: unknown.
        hparams: the hyper-parameters of the model.
        decoding: the decoding options, as `DecodingOptions.recorded` returns them.
        quantization: the dtype to which the weights are rounded; None: float32.
        origin: where the weights come from that others have trained, see `RunConfig`.
        verified: the number of sentences with which it was verified.
        identical: how many of their outputs equalled the run's.
    """

    version: str
    problem: str
    languages: list[str] | None = None
    hparams: dict[str, Any] = dataclasses.field(default_factory=dict)
    decoding: dict[str, Any] = dataclasses.field(default_factory=dict)
    quantization: str | None = None
    origin: dict[str, str] = dataclasses.field(default_factory=dict)
    verified: int = 0
    identical: int = 0

    @classmethod
    def read(cls, export_dir: Path) -> Self:
        """Returns the settings of an export.

        Raises:
            UserError: the file is absent or damaged.
        """
        path = export_dir / SETTINGS
        fields = read_json(path, "export the model again")
        if fields is None:
            raise UserError(
                f"--export_dir: {export_dir} has no {SETTINGS}; export the model again"
            )
        return from_fields(cls, fields, path)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextProcessorSettings(ExportSettings):
    """The settings of an export from which its text processor can be made again.

    Attributes:
        text_processor: `plain` is `TextProcessor` with `tags`; `registered` is the
            registered problem's; `unknown` is an unregistered problem's.
        tags: words before sources that are one token.
    """

    text_processor: Literal["plain", "registered", "unknown"]
    tags: list[str]

    def make_text_processor(self, export_dir: Path) -> TextProcessor:
        """Returns the text processor.

        Args:
            export_dir: the directory of the export, for messages.

        Raises:
            UserError: it belongs to a problem that is not registered.
        """
        if self.text_processor == "plain":
            return TextProcessor(tags=tuple(self.tags))
        if self.text_processor == "registered":
            return registered_text_processor(self.problem, export_dir)
        raise UserError(
            f"--export_dir: problem '{self.problem}' was not registered when "
            f"{export_dir} was exported; export the model again with its --usr_dir, or "
            "call the signature `translate` with TensorFlow"
        )


def make_settings(
    translator: "ModelTranslator",
    options: DecodingOptions,
    quantization: str | None,
    verify: "Verification | None",
) -> dict[str, object]:
    """Returns the fields of `TextProcessorSettings` for an export.

    Args:
        translator: the translator that is exported.
        options: its decoding options.
        quantization: the dtype to which the weights are rounded; None: float32.
        verify: the verification that the export has passed; None: there was none.
    """
    return {
        "version": importlib.metadata.version("t2t_keras"),
        "problem": translator.problem.name,
        "languages": translator.problem.languages,
        "hparams": dataclasses.asdict(translator.model.hparams),
        "decoding": options.recorded(),
        "quantization": quantization,
        "origin": translator.origin,
        "verified": len(verify.texts) if verify else 0,
        "identical": verify.identical if verify else 0,
        **_text_processor_settings(translator.problem),
    }


def _text_processor_settings(problem: Problem) -> dict[str, object]:
    text_processor = problem.text_processor
    settings: dict[str, object] = {"text_processor": "unknown", "tags": []}
    if type(text_processor) is TextProcessor:
        tags = list(text_processor.tags)
        return settings | {"text_processor": "plain", "tags": tags}
    with contextlib.suppress(UserError):
        registered = registry.problem(problem.name).text_processor
        if type(registered) is type(text_processor):
            settings["text_processor"] = "registered"
    return settings


def registered_text_processor(problem: str, export_dir: Path) -> TextProcessor:
    """Returns the text processor of the problem of an export.

    Args:
        problem: the name of the problem.
        export_dir: the directory of the export, for messages.

    Raises:
        UserError: no such problem is registered.
    """
    try:
        return registry.problem(problem).text_processor
    except UserError as error:
        raise UserError(
            f"--export_dir: {export_dir} needs the text processor of its problem: "
            f"{error}; give the --usr_dir that registers it"
        ) from None


class ExportedTranslator(Translator):
    """A `Translator` whose engine runs an export.

    Args:
        engine: the engine.
        settings: the settings of the export.
        request_options: the names of the options that requests of `t2t serve` may have;
            None: all that requests may have at all.

    Attributes:
        settings: the content of `t2t_export.json`, as attributes.
        request_options: see above.
    """

    def __init__(
        self,
        engine: Engine,
        settings: ExportSettings,
        request_options: Sequence[str] | None = None,
    ) -> None:
        super().__init__(engine)
        self.settings = settings
        self.request_options = request_options or DecodingOptions.names("is_served")
