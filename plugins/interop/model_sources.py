"""Where `t2t import` finds a model: on the disk, on the Hub or in a ZIP file.

A path that exists is always taken. `OWNER/NAME[@REVISION]` is otherwise a repository of
the Hugging Face Hub, which `hf:` before the name enforces. A ZIP file, such as those of
OPUS-MT, may also be given by its address.
"""

import contextlib
import dataclasses
import http.client
import re
import shutil
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from t2t_keras.console import say
from t2t_keras.display import end_spinner
from t2t_keras.errors import UserError, first_line, require_extra, require_local
from t2t_keras.files.config_files import parse_yaml
from t2t_keras.files.download import write_body
from t2t_keras.files.text_files import (
    ZIP_DAMAGE,
    read_text,
    readable,
    require_fetched_file,
)
from t2t_keras.run.config import has_checkpoint

_HUB_NAME = re.compile(r"([\w.-]+/[\w.-]+)(?:@(\S+))?", re.ASCII)
_HUB_PAGE = re.compile(
    r"(?:https?://)?(?:huggingface|hf)\.co/([\w.-]+/[\w.-]+)/?(?:tree/.*)?", re.ASCII
)
# The files of a Marian model of transformers; of the weights, the first that is there.
_NEEDED = ("config.json", "vocab.json", "source.spm", "target.spm")
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_OPTIONAL = ("generation_config.json", "target_vocab.json", "README.md")

# What is recorded and printed of the text that a stranger gives as a licence.
_LICENSE = re.compile(r"[\w.,+() -]{1,80}", re.ASCII)
_RELEASES = "https://github.com/Helsinki-NLP/OPUS-MT-train/tree/master/models"

# Weights hardly compress, lists of tokens do. More is made to fill the disk.
_MAX_COMPRESSION = 20
_MAX_MEMBERS = 1000
_TIMEOUT_SECONDS = 60


@dataclasses.dataclass(frozen=True)
class FoundModel:
    """The files of a model.

    Attributes:
        path: their directory, or what the user has given.
        origin: where they come from: "repository" and "commit", or "archive", and
            "license" if it is named; {}: they were on the disk.
    """

    path: Path
    origin: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def shown(self, text: str) -> str:
        """Returns a text in which paths in a temporary directory name the origin."""
        if not self.origin:
            return text
        return text.replace(str(self.path), origin_name(self.origin))


def origin_name(origin: Mapping[str, str]) -> str:
    """Returns an origin in a word, such as `Helsinki-NLP/opus-mt-en-de@35bbec8`."""
    if "repository" in origin:
        return f"{origin['repository']}@{origin['commit'][:7]}"
    return origin["archive"]


def is_on_disk(source: str) -> bool:
    """Returns whether the files of a model can be read where they are.

    Args:
        source: the argument of `t2t import`.

    Raises:
        UserError: there is nothing of this name, and it cannot be fetched either.
    """
    if source.startswith("hf:"):
        _hub_name(source.removeprefix("hf:"))
        return False
    path = Path(source)
    with contextlib.suppress(OSError):  # a name may be too long
        if source and (path.exists() or has_checkpoint(path)):
            return path.suffix.lower() != ".zip" or not path.is_file()
    if page := _HUB_PAGE.fullmatch(source):
        raise UserError(
            f"{source} is a page of the Hugging Face Hub; give the name of its model, "
            f"{page[1]}"
        )
    if "://" in source:
        _require_safe(source)
    elif _HUB_NAME.fullmatch(source):
        _hub_name(source)
    elif re.match("opus-mt-", path.name):
        raise UserError(
            f"there is no {source}; did you mean Helsinki-NLP/{path.name}, a model of "
            "the Hugging Face Hub?"
        )
    else:
        require_local("SOURCE", source)
        raise UserError(
            f"there is no '{source}'; a model is a path, OWNER/NAME on the Hugging "
            "Face Hub, or the address of a ZIP file"
        )
    return False


@contextlib.contextmanager
def model_files(source: str) -> Iterator[FoundModel]:
    """Finds a model, and fetches or unpacks it for the block where that is needed.

    Errors in the block name the origin instead of a temporary directory.

    Args:
        source: the argument of `t2t import`.

    Raises:
        UserError: there is no such model, or it cannot be fetched or unpacked.
    """
    if is_on_disk(source):
        yield FoundModel(Path(source))
        return
    with contextlib.ExitStack() as stack:
        if not source.startswith("hf:") and (Path(source).exists() or "://" in source):
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            model = _from_archive(source, Path(folder))
        else:
            model = _from_hub(*_hub_name(source.removeprefix("hf:")))
        try:
            yield model
        except UserError as error:
            raise UserError(model.shown(str(error))) from None


# The Hugging Face Hub


def _hub_name(text: str) -> tuple[str, str | None]:
    """Returns the name and the revision of a repository, None: its main branch.

    Raises:
        UserError: it is not a name, or `huggingface_hub` is not installed.
    """
    match = _HUB_NAME.fullmatch(text)
    if not match:
        raise UserError(
            f"hf:{text} is not a model of the Hugging Face Hub, whose names are "
            "OWNER/NAME, or OWNER/NAME@REVISION"
        )
    purpose = f"there is no path {text} here, and fetching it from the Hugging Face Hub"
    require_extra("marian", purpose, "huggingface_hub")
    return match[1], match[2]


def _from_hub(name: str, revision: str | None) -> FoundModel:
    """Fetches the files of a repository into the cache of huggingface_hub.

    Without a connection, those in the cache are taken.

    Raises:
        UserError: there is no such repository or revision, it has no Marian model, or
            it cannot be fetched and is not in the cache.
    """
    from huggingface_hub import constants, errors, hf_hub_download, snapshot_download

    address = f"{constants.ENDPOINT}/{name}"
    no_path = "" if Path(name).exists() else f"there is no path {name}, and "
    license_name = ""
    try:
        commit, files, license_name = _announced_files(name, revision, address)
        # `snapshot_download` has threads, which would finish their files after Ctrl-C.
        for file in files:
            hf_hub_download(name, file, revision=commit)
        # It records that the revision is this commit, for use without a connection.
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=files))
    except UserError:
        raise
    except errors.GatedRepoError:
        raise UserError(
            f"{address} wants its terms accepted: accept them there, then run `hf auth "
            "login`"
        ) from None
    except errors.RepositoryNotFoundError:
        raise UserError(
            f"{no_path}there is no public model {address}; "
            f"{constants.ENDPOINT}/models?search=opus-mt lists such models, and `hf "
            "auth login` opens private ones"
        ) from None
    except errors.RevisionNotFoundError:
        raise UserError(f"{address} has no revision {revision}") from None
    # httpx, requests and the system raise errors without a common class.
    except Exception as error:
        cached = _cached_folder(name, revision)
        if cached is None:
            raise UserError(
                f"{no_path}{address} cannot be fetched "
                f"({first_line(error) or type(error).__name__}) and is not in "
                f"{constants.HF_HUB_CACHE}; if you have its files, give their directory"
            ) from None
        folder = cached
        say(
            f"cannot fetch {address} ({first_line(error)}); the copy in "
            f"{constants.HF_HUB_CACHE} is taken"
        )
    for file in _WEIGHTS:
        _require_uploaded(folder / file, address)
    license_name = license_name or _license_of_readme(folder / "README.md")
    origin = {"repository": name, "commit": folder.name, "license": license_name}
    return FoundModel(folder, {key: text for key, text in origin.items() if text})


def _announced_files(
    name: str, revision: str | None, address: str
) -> tuple[str | None, list[str], str]:
    """Says size and licence of what is fetched.

    Returns:
        The commit, the files, and the licence, "" if the repository names none.

    Raises:
        UserError: the repository has no Marian model.
    """
    from huggingface_hub import HfApi, utils

    info = HfApi().model_info(name, revision=revision, files_metadata=True)
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    files = _chosen_files(sizes, address)
    tags = [tag for tag in info.tags or () if tag.startswith("license:")]
    license_name = _known_license(tags[0].removeprefix("license:")) if tags else ""
    megabytes = sum(sizes[file] for file in files) / 1e6
    say(
        f"{name}: {megabytes:,.1f} MB, licence {license_name or 'not named'} "
        f"({address})"
    )
    end_spinner()  # huggingface_hub has bars
    if not sys.stderr.isatty():
        utils.disable_progress_bars()
    return info.sha, files, license_name


def _chosen_files(names: Collection[str], address: str) -> list[str]:
    """Returns those files of a repository that are fetched.

    Raises:
        UserError: it has no Marian model.
    """
    missing = [name for name in _NEEDED if name not in names]
    weights = [name for name in _WEIGHTS if name in names][:1]
    if not weights:
        missing.append(" or ".join(_WEIGHTS))
    if missing:
        raise UserError(
            f"{address} is not a Marian model of transformers: it has no "
            f"{' and no '.join(missing)}"
        )
    return [*_NEEDED, *weights, *(name for name in _OPTIONAL if name in names)]


def _cached_folder(name: str, revision: str | None) -> Path | None:
    """Returns the directory of a model in the cache; None: it is not whole."""
    from huggingface_hub import try_to_load_from_cache

    try:
        path = try_to_load_from_cache(name, _NEEDED[0], revision=revision)
    except (OSError, ValueError):
        return None
    if not isinstance(path, str):
        return None
    folder = Path(path).parent
    is_whole = all((folder / file).exists() for file in _NEEDED)
    has_weights = any((folder / file).exists() for file in _WEIGHTS)
    return folder if is_whole and has_weights else None


def _require_uploaded(path: Path, address: str) -> None:
    """Raises UserError if a repository has a pointer in the place of a file."""
    try:
        require_fetched_file(path)
    except UserError:
        raise UserError(
            f"{address} has a pointer of Git LFS in the place of {path.name}: its "
            "owner has not uploaded the file"
        ) from None


def _license_of_readme(path: Path) -> str:
    """Returns the licence in the head of a model card; "": it names none."""
    if not path.exists():
        return ""
    try:
        _, head, _ = f"{read_text(path)}---".split("---\n", 2)
        values = parse_yaml(head, str(path))
    except (UserError, ValueError):
        return ""
    license_name = values.get("license", "") if isinstance(values, dict) else ""
    return _known_license(str(license_name))


def _known_license(text: str) -> str:
    """Returns a licence that a stranger has written; "": it is not a name."""
    if text.startswith("Attribution 4.0 International"):
        return "cc-by-4.0"  # the Hub's name of it
    return text if _LICENSE.fullmatch(text) else ""


# ZIP files


def _from_archive(source: str, folder: Path) -> FoundModel:
    """Unpacks a ZIP file into a folder, after it was fetched if it is an address.

    Raises:
        UserError: it cannot be fetched, is no ZIP file, or is damaged.
    """
    path = Path(source)
    if not path.exists():
        path = folder / "release.zip"
        _download(source, path)
    files = folder / "files"
    files.mkdir()
    _unpack(path, files, source)
    # An archive may have the files in a directory.
    while len(names := list(files.iterdir())) == 1 and names[0].is_dir():
        files = names[0]
    license_file = files / "LICENSE"
    text = ""
    if license_file.is_file():
        with contextlib.suppress(UserError):
            text = read_text(license_file).partition("\n")[0].strip()
    origin = {"archive": source, "license": _known_license(text)}
    return FoundModel(files, {key: text for key, text in origin.items() if text})


def _require_safe(address: str) -> None:
    """Refuses an address from which no archive is fetched.

    Raises:
        UserError: it is not of https, nor of http on this machine.
    """
    try:
        parts = urlsplit(address)
        scheme, host = parts.scheme, parts.hostname
    except ValueError:
        scheme, host = "", None
    if scheme == "https" or (scheme == "http" and host in ("127.0.0.1", "localhost")):
        return
    if scheme == "http":
        raise UserError(f"{address} can be read by others on the way; give its https:")
    require_local("SOURCE", address)
    raise UserError(f"{address} is not an address of https")


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows an address only to others that `_require_safe` accepts."""

    def redirect_request(self, *arguments: Any) -> urllib.request.Request | None:
        _require_safe(arguments[-1])
        return super().redirect_request(*arguments)


def _download(address: str, path: Path) -> None:
    """Fetches an archive.

    Raises:
        UserError: the server cannot be reached, or does not send the whole file.
    """
    try:
        opener = urllib.request.build_opener(_SafeRedirects)
        with opener.open(address, timeout=_TIMEOUT_SECONDS) as response:
            total = int(response.headers.get("Content-Length") or 0)
            size = f"{total / 1e6:,.1f} MB" if total else "of unknown size"
            say(f"{address}: {size}")
            _require_space(address, total, path.parent)
            write_body(response, path, "fetching")
    except urllib.error.HTTPError as error:
        raise UserError(
            f"{address}: the server answers {error.code} ({error.reason}); {_RELEASES} "
            "lists the releases of OPUS-MT"
        ) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or first_line(error)
        raise UserError(
            f"cannot fetch {address} ({reason}); fetch it by other means and give the "
            "file"
        ) from None


def _require_space(name: str, size: int, folder: Path) -> None:
    """Raises UserError if a temporary folder has less space than the file `name`."""
    free = shutil.disk_usage(folder).free
    if size > free:
        raise UserError(
            f"{name} needs {size:,} bytes in {tempfile.gettempdir()}, where {free:,} "
            "are free; set TMPDIR to a directory on a larger disk"
        )


def _unpack(path: Path, folder: Path, name: str) -> None:
    """Unpacks the files of an archive; names that lead outside are kept inside.

    Args:
        path: the archive.
        folder: the directory for its files.
        name: what messages call it.

    Raises:
        UserError: it is no ZIP file, is damaged or encrypted, or would fill the disk.
    """
    with readable(path), open(path, "rb") as file:
        head = file.read(512).lstrip().lower()
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            size = sum(member.file_size for member in members)
            if size > _MAX_COMPRESSION * path.stat().st_size + 1_000_000:
                raise UserError(
                    f"{name} would have {size:,} bytes when it is unpacked, more than "
                    "any model"
                )
            if len(members) > _MAX_MEMBERS:
                raise UserError(f"{name} has {len(members):,} files; is it a model?")
            _require_space(name, size, folder)
            archive.extractall(folder)
    except RuntimeError:
        raise UserError(
            f"{name} is encrypted, or compressed by a method that Python does not know;"
            " unpack it by other means, and give its directory"
        ) from None
    except ZIP_DAMAGE as error:
        fault = "cut off or damaged" if head.startswith(b"pk") else "not a ZIP file"
        if head.startswith(b"<"):
            fault = "a page of HTML, not a ZIP file"
        raise UserError(
            f"{name} is {fault} ({first_line(error)}); fetch it again"
        ) from None
