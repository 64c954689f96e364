"""The one Settings tree: read once in __main__ from a TOML file, the environment and flags, then passed down."""

import os
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource


class HttpSettings(BaseModel):
    """Limits and timeouts of the hot port."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_request_bytes: int = Field(10 * 1024 * 1024, gt=0, description="a larger call is refused before it is read")
    max_header_bytes: int = Field(32 * 1024, gt=0)
    max_connections: int = Field(20_000, gt=0, description="per worker; further ones wait in the kernel's queue")
    max_buffered_bytes: int = Field(256 * 1024 * 1024, gt=0, description="request bodies held at once, per worker")
    header_timeout_seconds: float = Field(20.0, gt=0, description="from a request's first byte to its last header")
    body_timeout_seconds: float = Field(60.0, gt=0, description="from the last header to the last byte of the body")
    write_timeout_seconds: float = Field(60.0, gt=0, description="a client that reads nothing for so long is cut off")
    idle_timeout_seconds: float = Field(600.0, gt=0, description="a kept-alive connection without a request")
    drain_seconds: float = Field(10.0, ge=0, description="calls under way get so long after SIGTERM")


class DatastoreSettings(BaseModel):
    """Bounds of the Datastore that are ours to set; the protocol's own are constants."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    batch_results: int = Field(1000, gt=0, le=1000, description="most results in one answer")
    batch_bytes: int = Field(2_000_000, gt=0, description="an answer is cut after the result that passes this")
    indexes: Literal["automatic", "strict"] = Field(
        "automatic", description="strict: a query without its composite index is answered NEED_INDEX, as in production"
    )
    acknowledge: Literal["applied", "committed"] = Field(
        "applied",
        description="committed: on stores without transactions, answer at the commit point; global queries show a "
        "commit a moment later. The same on all servers of one store",
    )
    sort_results: int = Field(100_000, gt=0, description="most results a query without a fitting index may sort")
    default_deadline_seconds: float = Field(60.0, gt=0, description="of a call that names none")
    max_deadline_seconds: float = Field(600.0, gt=0)


class LogSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"


class Settings(BaseSettings):
    """All of pbserver's settings. Unknown keys are errors; flags beat the environment, which beats the file."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix="PBSERVER_", env_nested_delimiter="__", validate_default=True
    )

    listen: str = Field("127.0.0.1:10001", description="HOST:PORT that app servers call (API_HOST, API_PORT)")
    admin: str | None = Field("127.0.0.1:10002", description="HOST:PORT of health and metrics; none: no admin port")
    store: str = Field("lmdb:pbserver-data", description="where data lives, as NAME:PLACE?option=value")
    workers: int = Field(default_factory=lambda: os.cpu_count() or 1, ge=1, description="processes, one per core")
    threads: int = Field(9, ge=1, description="threads per worker")
    testing: bool = Field(False, description="POST /reset, ids from 1, reserved kinds writable; never in production")
    tls_cert: Path | None = None
    tls_key: Path | None = None
    http: HttpSettings = HttpSettings()  # type: ignore[call-arg]
    datastore: DatastoreSettings = DatastoreSettings()  # type: ignore[call-arg]
    log: LogSettings = LogSettings()

    @field_validator("admin", mode="before")
    @classmethod
    def _none_is_no_admin(cls, value: object) -> object:
        return None if value == "none" else value

    @field_validator("listen", "admin")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value is not None:
            host_and_port(value)
        return value

    @model_validator(mode="after")
    def _tls_is_whole(self) -> "Settings":
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key go together: set both, or neither")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        del dotenv_settings, file_secret_settings
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def complaints(wrong: ValidationError) -> list[str]:
    """One line per wrong setting: its key, what is the matter, what was given."""
    lines = []
    for error in wrong.errors():
        key = ".".join(str(part) for part in error["loc"])
        if error["type"] == "extra_forbidden":
            lines.append(f"{key}: there is no such setting")
        elif not key:
            lines.append(error["msg"].removeprefix("Value error, "))
        else:
            message = error["msg"].removeprefix("Value error, ")
            lines.append(f"{key}: {message[:1].lower()}{message[1:]} (given: {error['input']!r})")
    return lines


def load(file: Path | None, flags: dict[str, Any]) -> Settings:
    """Settings from `file` (TOML), the environment (PBSERVER_*) and `flags` (None: not given).

    Raises pydantic.ValidationError naming every wrong key, FileNotFoundError for a missing file.
    """
    if file is not None and not file.is_file():
        raise FileNotFoundError(f"settings file {file} does not exist")

    class FromFile(Settings):
        model_config = SettingsConfigDict(toml_file=file)

    given = {name: value for name, value in flags.items() if value is not None}
    return FromFile(**given)


def host_and_port(value: str) -> tuple[str, int]:
    """Splits HOST:PORT; an IPv6 host stands in brackets. Raises ValueError saying what was wrong."""
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{value!r} is not HOST:PORT, such as 127.0.0.1:10001 or [::1]:10001")
    return host.removeprefix("[").removesuffix("]"), int(port)
