"""Notice files of the user that change while a sweep runs.

A setting holds the hashes of the user's data and code, and workers load both later. What came of another content must
not be stored under the key of the first.
"""

import hashlib
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path

from wtawp.attacks.registry import attack_spec
from wtawp.base import WtawpError
from wtawp.experiments.spec import Setting, source_digest
from wtawp.experiments.spec.setting import SURROGATE_CODE, data_digest, user_loader
from wtawp.experiments.spec.sources import MEASURE_REFERENCES, user_sources
from wtawp.graphs.composed_names import files_of_name
from wtawp.models.registry import model_spec

FileHashes = tuple[tuple[Path, str], ...]  # absolute paths with the hashes of their content


class ChangedFileError(WtawpError):
    """Raised if a file whose hash is part of the keys of results has changed since the plan was made."""


def hash_files(settings: Iterable[Setting]) -> dict[Setting, FileHashes]:
    """Hash the files whose content is part of the keys of settings.

    The program itself, `__main__`, is not among them: workers are sent what it defines, and do not read it again.

    Args:
        settings: The settings.

    Returns:
        For each setting, the files with their hashes; none for data sets, models, attacks and measures of ours.

    Raises:
        ChangedFileError: If a file has changed since its setting was made.
    """
    hashes = {}
    digest_of_data, digest_of_source = cache(data_digest), cache(source_digest)
    for setting in dict.fromkeys(settings):
        has_data = setting.digest is not None
        files, references = list(files_of_name(setting.dataset)) if has_data else [], dict(_references(setting))
        for reference in references:
            sources = user_sources(reference.partition(":")[0])
            files += [path for module, path in sources.items() if module != "__main__"]
        hashes[setting] = tuple((path.absolute(), _hash_of(path)) for path in dict.fromkeys(files) if path.is_file())
        stale = [name for name, code in references.items() if code not in (None, digest_of_source(name))]
        stale += [setting.dataset] * (has_data and digest_of_data(setting.dataset) != setting.digest)
        if stale:
            raise ChangedFileError(f"{', '.join(stale)} changed after the plan was made; repeat the command")
    return hashes


def refuse_changed(hashes: FileHashes) -> None:
    """Refuse to go on if files have changed since they were hashed.

    Args:
        hashes: What `hash_files` returned, perhaps in another process. Files that are not there are passed over: on
            another machine the code may be elsewhere.

    Raises:
        ChangedFileError: If the content of a file is another one.
    """
    changed = [str(path) for path, digest in hashes if path.is_file() and _hash_of(path) != digest]
    if changed:
        raise ChangedFileError(
            f"{', '.join(changed)} changed while the sweep ran. Results are stored under the hash of what they came"
            " from, so those of the chunk that was being trained are not stored; repeat the command"
        )


def _references(setting: Setting) -> Iterator[tuple[str, str | None]]:
    """The user's functions and classes whose source is part of the key, each with its hash, None for one of data."""
    if setting.digest is not None and (loader := user_loader(setting.dataset)) is not None:
        yield loader, None
    if setting.code is not None:
        yield model_spec(setting.model).reference, setting.code
    for request in (*setting.measures, *(() if setting.poison is None else (setting.poison,))):
        options = dict(request.options)
        if isinstance(code := options.get("code"), str):
            attack = str(options.get("attack"))
            yield MEASURE_REFERENCES.get(request.name) or attack_spec(attack).reference, code
        if isinstance(code := options.get(SURROGATE_CODE), str):
            yield model_spec(str(options["surrogate"])).reference, code


def _hash_of(path: Path) -> str:
    """The hash of a file, which is read again only if it has changed."""
    state = path.stat()
    return _content_hash(path.absolute(), state.st_ino, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=256)
def _content_hash(path: Path, *_state: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
